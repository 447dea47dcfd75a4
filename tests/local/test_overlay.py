"""Overlays by the real uv, from a directory of wheels: nothing here reaches a network."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import venv
import zipfile
from pathlib import Path

import pytest

from dlobd import paths
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.experiment import own_job
from dlobd.experiment.own_job import fields_of
from dlobd.run import overlay, packing, runner
from dlobd.run.overlay import JobPython
from tests.recorded import read_all

UV = Path(sys.prefix) / "bin" / "uv"
pytestmark = pytest.mark.skipif(not UV.exists(), reason="this environment was installed without uv")

WHEELS = {
    "tiny": ("1.0", []),
    "needs-tiny": ("2.0", ["tiny>=1", "numpy", "pyspark>=4"]),
    "needs-old-spark": ("1.0", ["pyspark<4"]),
    "needs-old-numpy": ("1.0", ["numpy<1.5"]),
    "needs-nothing-there": ("1.0", ["no-such-package"]),
    "needs-old-tiny": ("1.0", ["tiny<1"]),
    "pandas": ("99.0", ["numpy"]),
    "connects": ("1.0", []),
}

reports: list[str] = []


def wheel(directory: Path, name: str, version: str, requires: list[str], code: str = "answer = 42\n") -> Path:
    file_name, module = name.replace("-", "_"), "pyspark" if name == "connects" else name.replace("-", "_")
    path, info = directory / f"{file_name}-{version}-py3-none-any.whl", f"{file_name}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{module}/__init__.py", code)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(autouse=True)
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_")) or name == "PYTHONPATH"]:
        monkeypatch.delenv(name)
    directory = tmp_path / "links"
    directory.mkdir()
    for name, (version, requires) in WHEELS.items():
        wheel(directory, name, version, requires)
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(directory)), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    reports.clear()
    return directory


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without any package."""
    directory = tmp_path_factory.mktemp("other") / "venv"
    venv.create(directory, with_pip=False)
    return directory / "bin" / "python"


def prepared(tmp_path: Path, *packages: str, python: Path | None = None) -> JobPython:
    (tmp_path / "job.py").touch()
    chosen = fields_of(str(python) if python else None, packages)
    return overlay.prepared(own_job.from_script(str(tmp_path / "job.py"), [], chosen=chosen), reports.append)


def test_an_overlay_has_only_missing_packages_and_is_built_once(tmp_path: Path) -> None:
    job = prepared(tmp_path, "needs-tiny")
    assert job.versions == {"needs-tiny": "2.0", "tiny": "1.0"}, "neither PySpark nor numpy"
    assert job.modules
    assert list((job.modules / "tiny" / "__pycache__").glob("*.pyc")), "compiled before the window"
    assert prepared(tmp_path, "needs-tiny") == job
    threads = [threading.Thread(target=prepared, args=(tmp_path, "tiny")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert reports == ["installing packages, once: needs-tiny", "installing packages, once: tiny"]
    assert prepared(tmp_path, "numpy", "pyspark").versions == {}, "the nodes have them"
    assert "pandas" not in packing.on_nodes()
    assert prepared(tmp_path, "pandas").versions == {"pandas": "99.0"}, "only the client has another"
    names = {path.name for path in (tmp_path / "cache" / "packages").iterdir()}
    assert {name for name in names if len(name) != 16} == {".lock"}, "no scratch directory is left"


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        ("needs-old-spark", r"depends? on pyspark<4 and pyspark==4\.3\.0"),
        ("pyspark==3.5.1", r"pyspark==3\.5\.1 and pyspark==4\.3\.0"),
        ("needs-old-numpy", r"depends? on numpy<1\.5 and numpy=="),
        ("tiny==1.0 needs-old-tiny", "needs-old-tiny depend on tiny<1"),
        ("needs-nothing-there", "no-such-package was not found"),
        ("tiny==", "Failed to parse: `tiny==`"),
    ],
)
@pytest.mark.parametrize("other", [False, True])
def test_packages_that_contradict_are_one_line(
    tmp_path: Path, packages: str, words: str, other: bool, bare: Path
) -> None:
    if other and "numpy" in packages:
        return  # it has no numpy that could contradict
    with pytest.raises(UsageError, match=words) as error:
        prepared(tmp_path, *packages.split(), python=bare if other else None)
    assert error.value.line.startswith("The packages cannot be installed: ")
    assert len(error.value.line) < 600
    assert list((tmp_path / "cache" / "packages").glob("[0-9a-f]*")) == []


def test_a_plan_checks_packages_and_installs_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()

    def plan(*packages: str) -> list[str]:
        return runner.plan(own_job.from_script(str(tmp_path / "job.py"), [], chosen=fields_of(None, packages)))

    assert "prepare: install needs-tiny, once" in plan("needs-tiny")
    assert list((tmp_path / "cache" / "packages").glob("[0-9a-f]*")) == []
    with pytest.raises(UsageError, match="no-such-package was not found"):
        plan("needs-nothing-there")


def test_a_package_with_a_pyspark_of_its_own_is_refused(tmp_path: Path) -> None:
    """Such as clients of Spark Connect, under another name."""
    with pytest.raises(UsageError, match=r"connects, tiny bring another pyspark\. Next: omit the package"):
        prepared(tmp_path, "tiny", "connects")


def test_a_package_that_does_not_build_is_one_line(tmp_path: Path, links: Path) -> None:
    source = tmp_path / "broken-1.0"
    source.mkdir()
    system = '[build-system]\nrequires = []\nbackend-path = ["."]\nbuild-backend = "backend"\n'
    (source / "pyproject.toml").write_text(f'{system}[project]\nname = "broken"\nversion = "1.0"\n')
    (source / "backend.py").write_text("def build_wheel(*words):\n    raise RuntimeError('no compiler')\n")
    subprocess.run(["tar", "-czf", links / "broken-1.0.tar.gz", "-C", tmp_path, source.name], check=True)
    with pytest.raises(DlobdError, match="no compiler"):
        prepared(tmp_path, "broken")


def test_a_fault_of_the_machine_is_no_fault_of_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as change:
        change.setattr(overlay, "_build", full)
        with pytest.raises(SetupError, match=r"cannot be written to .*: No space left on device"):
            prepared(tmp_path, "tiny")
    for name, value in (
        ("PIP_NO_INDEX", "0"),
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
        ("UV_HTTP_RETRIES", "0"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match="the package index cannot be reached"):
        prepared(tmp_path, "no-such-package")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(SetupError, match=r"need uv, which is not installed. Next: pip install uv"):
        prepared(tmp_path, "tiny")


def test_a_changed_wheel_is_another_package(tmp_path: Path, links: Path) -> None:
    path = links / "tiny-1.0-py3-none-any.whl"
    first = prepared(tmp_path, str(path))
    wheel(links, "tiny", "1.0", [], "answer = 43\n")
    second = prepared(tmp_path, str(path))
    assert first.modules != second.modules
    assert second.modules
    assert "43" in (second.modules / "tiny" / "__init__.py").read_text()


def test_an_archive_has_all_files(tmp_path: Path) -> None:
    job = prepared(tmp_path, "needs-tiny")
    assert job.modules
    tarball = packing.packages(job.modules)
    assert tarball.name == f"packages-{job.modules.parent.name}.tar.gz"
    (tmp_path / "there").mkdir()
    subprocess.run(["tar", "-x", "-C", tmp_path / "there"], input=b"".join(tarball.chunks()), check=True)
    code = "import os; os.chdir('/'); import needs_tiny, tiny; print(needs_tiny.answer + tiny.answer)"
    environment = {**os.environ, "PYTHONPATH": "./there"}
    assert subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, env=environment) == b"84\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\nexit 3\n", "is not a Python interpreter"),
        ("#!/bin/no-such-program\n", "is not a Python interpreter"),
        ("#!/bin/sh\necho '[[3, 9], \"3.9.2\", []]'\n", r"is Python 3\.9\.2: recording needs 3\.11 or later"),
    ],
)
def test_a_program_that_cannot_record_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "program").write_text(text)
    (tmp_path / "program").chmod(0o755)
    with pytest.raises(UsageError, match=words):
        prepared(tmp_path, python=tmp_path / "program")


SCRIPT = """
import json, sys
import tiny
import dlobd.job.user.daemon, dlobd.job.user.stock_daemon
others = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")} - sys.stdlib_module_names
print(json.dumps([sys.prefix, sorted(others), tiny.answer]))
"""


def test_another_python_records_without_any_other_package(tmp_path: Path, bare: Path) -> None:
    """The driver's hooks and the worker daemon's, in an interpreter that has neither TensorFlow nor numpy."""
    job = prepared(tmp_path, "tiny", python=bare)
    assert job.versions == {"python": ".".join(map(str, sys.version_info[:3])), "tiny": "1.0"}
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": f"{job.modules}:{paths.modules_dir()}"}
    command = [bare, paths.shipped("jobs") / "user.py", "tfos", tmp_path / "spans", tmp_path / "script.py"]
    found = json.loads(subprocess.check_output(command, env=environment, timeout=60))
    assert found == [str(bare.parents[1]), ["dlobd", "tiny"], 42]
    (process,) = read_all(tmp_path / "spans")
    assert (process.process.role, len(process.named("user code"))) == ("driver", 1)
