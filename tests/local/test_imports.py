"""Which packages a process imports, for whom and how long: real modules, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess
from dlobd.fields import plain
from dlobd.measures.user_code import imports
from dlobd.paths import python_path
from tests.recorded import read_all

BEGIN = """
import os, sys
from dlobd import tracing
from dlobd.job.launchers.imports import record_packages
tracing.start(sys.argv[1], "driver")
record_packages()
record_packages()
"""


def recorded(directory: Path, code: str) -> list[RecordedProcess]:
    """What a Python recorded that runs `code`; modules in the directory can be imported."""
    command = [sys.executable, "-c", BEGIN + code, str(directory / "spans")]
    environment = {"PYTHONPATH": f"{directory}:{python_path()}", "PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run(command, check=True, env=environment, timeout=110)
    return read_all(directory / "spans")


def rows(processes: list[RecordedProcess]) -> dict[tuple[str, str], tuple[int, int]]:
    """Package and importer to how long it took, with and without what it imported."""
    found = plain(imports(cast(Evidence, SimpleNamespace(all_processes=processes))))
    return {(row["package"], row["by"]): (row["ns"], row["own_ns"]) for row in found}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


PAUSE = "import time\ntime.sleep(0.03)\n"


def test_a_package_is_charged_without_what_it_imports_and_that_with_who_wanted_it(tmp_path: Path) -> None:
    write(tmp_path / "outer" / "__init__.py", PAUSE + "import outer.part\n")
    write(tmp_path / "outer" / "part.py", PAUSE + "import inner.deep\n")
    write(tmp_path / "inner" / "__init__.py", PAUSE)
    write(tmp_path / "inner" / "deep.py", PAUSE)
    write(tmp_path / "quick.py", "")
    found = rows(recorded(tmp_path, "import outer, quick, inner\nassert outer.part.inner.deep\n"))
    # on a busy machine an empty module may take as long as one that is told
    assert found.pop(("quick", ""), (1_000_000, 0))[0] >= 1_000_000
    assert {key for key in found if key[0] in ("outer", "inner", "quick")} == {("outer", ""), ("inner", "outer")}
    (ns, own_ns), (inner_ns, inner_own_ns) = found["outer", ""], found["inner", "outer"]
    assert own_ns >= 60_000_000
    assert inner_own_ns <= inner_ns
    assert inner_ns >= 60_000_000
    assert ns >= own_ns + inner_ns


def test_modules_are_as_without_it(tmp_path: Path) -> None:
    """Their loaders, sources and packages, in a zip too; one that fails leaves its error, and can be tried again."""
    write(tmp_path / "plain.py", PAUSE)
    write(tmp_path / "broken.py", PAUSE + "raise ValueError('its own')\n")
    with zipfile.ZipFile(tmp_path / "far.zip", "w") as archive:
        archive.writestr("far/__init__.py", PAUSE)
    code = f"""
import importlib, inspect
sys.path.insert(0, {str(tmp_path / "far.zip")!r})
import plain, far
assert type(plain.__loader__).__name__ == type(plain.__spec__.loader).__name__ == "SourceFileLoader"
assert type(far.__loader__).__name__ == "zipimporter"
assert inspect.getsource(plain).startswith("import time")
importlib.reload(plain)
for _ in range(2):
    try:
        import broken
    except ValueError as error:
        assert str(error) == "its own"
try:
    import nowhere
except ModuleNotFoundError as error:
    assert error.name == "nowhere"
"""
    found = rows(recorded(tmp_path, code))
    assert {("plain", ""), ("far", ""), ("broken", "")} <= found.keys()


def test_a_hook_of_an_import_outlives_a_look_up_and_a_failure(tmp_path: Path) -> None:
    """TensorFlow looks for Keras before it imports it. The hook runs once, at the end of the import that succeeds."""
    write(tmp_path / "wanted.py", "import os\nif os.environ.pop('FAILS', ''): raise ImportError\nready = True\n")
    code = """
import importlib.util
from dlobd.job.launchers.imports import on_import
seen = []
on_import("wanted", None, lambda module: seen.append(module.ready))
assert importlib.util.find_spec("wanted") and importlib.util.find_spec("wanted").loader.is_package("wanted") is False
finders = len(sys.meta_path)
import wanted
assert (seen, len(sys.meta_path)) == ([True], finders - 1)
os.environ["FAILS"] = "yes"
del sys.modules["wanted"]
on_import("wanted", None, lambda module: seen.append(2))
try:
    import wanted
except ImportError:
    pass
import wanted
assert seen == [True], seen
"""
    recorded(tmp_path, code)


def test_a_fork_records_what_it_imports_itself(tmp_path: Path) -> None:
    write(tmp_path / "late.py", PAUSE)
    code = "pid = os.fork()\nif pid == 0:\n    import late\n    tracing.flush()\n    os._exit(0)\nos.waitpid(pid, 0)\n"
    processes = recorded(tmp_path, code)
    forked = [process for process in processes if process.forked]
    assert ("late", "") in rows(forked)
    assert ("late", "") not in rows([process for process in processes if not process.forked])


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tfos", "tfos-stock"])
def test_importing_tensorflowonspark_is_the_launchers_time_with_either_launcher(launcher: str, tmp_path: Path) -> None:
    """In executors too: `tfos` does it in the worker daemon, `tfos-stock` in each Python worker; and as published it
    imports TensorFlow along, which is TensorFlow's."""
    module = {"tfos": "tfos_compat", "tfos-stock": "tfos_stock"}[launcher]
    code = f"from dlobd.job.launchers import {module}\n{module}.install()\nimport tensorflowonspark.TFSparkNode\n"
    spans = [span for process in recorded(tmp_path, code) for span in process.spans]
    own = [span for span in spans if span.name == "import tensorflowonspark"]
    assert own
    assert {span.layer for span in own} == {"launcher"}
    inside = [span for span in spans if span.name == "import tensorflow"]
    assert len(inside) == (launcher == "tfos-stock")
    for span in inside:
        assert span.layer == "tensorflow"
        assert any(outer.start_ns < span.start_ns < span.end_ns < outer.end_ns for outer in own)
