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
from dlobd.evidence import recorder
from dlobd.experiment import own_job
from dlobd.experiment.job_python import fields_of
from dlobd.paths import sha256_of
from dlobd.run import overlay, packing
from dlobd.run.overlay import JobPython

pytestmark = pytest.mark.skipif(
    not (Path(sys.prefix) / "bin" / "uv").exists(), reason="this environment was installed without uv"
)

WHEELS = {
    "tiny": ("1.0", []),
    "needs-tiny": ("2.0", ["tiny>=1", "numpy", "pyspark>=4"]),
    "needs-old-spark": ("1.0", ["pyspark<4"]),
    "needs-old-numpy": ("1.0", ["numpy<1.5"]),
    "needs-nothing-there": ("1.0", ["no-such-package"]),
    "contradicts-tiny": ("1.0", ["tiny<1"]),
}


def wheel(directory: Path, name: str, version: str, requires: list[str], code: str = "answer = 42\n") -> Path:
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    path = directory / f"{module}-{version}-py3-none-any.whl"
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
    return directory


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without any package."""
    directory = tmp_path_factory.mktemp("other") / "venv"
    venv.create(directory, with_pip=False)
    return directory / "bin" / "python"


def prepared(tmp_path: Path, *packages: str, python: Path | None = None, requirements: str = "") -> JobPython:
    (tmp_path / "job.py").touch()
    file = tmp_path / "needs.txt" if requirements else None
    if file:
        file.write_text(requirements)
    job = own_job.from_script(
        str(tmp_path / "job.py"), [], chosen=fields_of(str(python) if python else None, packages, file)
    )
    return overlay.prepared(job, reports.append)


reports: list[str] = []


@pytest.fixture(autouse=True)
def _no_reports() -> None:
    reports.clear()


def modules_of(job: JobPython) -> set[str]:
    assert job.modules is not None
    return {path.name for path in job.modules.iterdir() if not path.name.endswith(".dist-info")}


def test_an_overlay_has_only_missing_packages_and_is_built_once(tmp_path: Path) -> None:
    job = prepared(tmp_path, "needs-tiny")
    assert job.versions == {"needs-tiny": "2.0", "tiny": "1.0"}
    assert modules_of(job) == {"needs_tiny", "tiny"}, "neither PySpark nor numpy"
    assert job.modules
    assert list((job.modules / "tiny" / "__pycache__").glob("*.pyc")), "compiled before the window"
    assert prepared(tmp_path, "needs-tiny") == job
    assert reports == ["installing packages, once: needs-tiny"]
    assert prepared(tmp_path, requirements="needs-tiny\n").modules != job.modules
    assert prepared(tmp_path, "numpy", "pyspark").versions == {}, "the nodes have them"
    names = {path.name for path in (tmp_path / "cache" / "packages").iterdir()}
    assert {name for name in names if len(name) != 16} == {".lock"}, "no scratch directory is left"


def test_a_package_that_only_the_client_has_may_have_any_version(tmp_path: Path, links: Path) -> None:
    """dlobd's client has pandas, its packed environment has not."""
    assert "pandas" not in packing.on_nodes()
    wheel(links, "pandas", "99.0", ["numpy"])
    assert prepared(tmp_path, "pandas").versions == {"pandas": "99.0"}


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("needs-old-spark", r"depends? on pyspark<4 and pyspark==4\.3\.0"),
        ("pyspark==3.5.1", r"pyspark==3\.5\.1 and pyspark==4\.3\.0"),
        ("needs-old-numpy", r"depends? on numpy<1\.5 and numpy=="),
        ("needs-nothing-there", "no-such-package was not found"),
        ("no-such-package", "no-such-package was not found"),
        ("tiny==", "Failed to parse: `tiny==`"),
    ],
)
@pytest.mark.parametrize("other", [False, True])
def test_packages_that_contradict_are_one_line(
    tmp_path: Path, package: str, words: str, other: bool, bare: Path
) -> None:
    if other and "numpy" in package:
        return  # it has no numpy that could contradict
    with pytest.raises(UsageError, match=words) as error:
        prepared(tmp_path, package, python=bare if other else None)
    assert error.value.line.startswith("The packages cannot be installed: ")
    assert error.value.line.count("The packages") == 1
    assert len(error.value.line) < 600
    assert list((tmp_path / "cache" / "packages").glob("[0-9a-f]*")) == []


def test_two_packages_of_one_line_may_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"contradicts-tiny depend on tiny<1"):
        prepared(tmp_path, "tiny==1.0", "contradicts-tiny")


def test_a_package_that_does_not_build_is_one_line(tmp_path: Path, links: Path) -> None:
    source = tmp_path / "broken-1.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbackend-path = ["."]\nbuild-backend = "backend"\n'
        '[project]\nname = "broken"\nversion = "1.0"\n'
    )
    (source / "backend.py").write_text("def build_wheel(*words):\n    raise RuntimeError('no compiler')\n")
    subprocess.run(["tar", "-czf", links / "broken-1.0.tar.gz", "-C", tmp_path, source.name], check=True)
    with pytest.raises(DlobdError, match="no compiler") as error:
        prepared(tmp_path, "broken")
    assert "\n" not in error.value.line


def test_a_missing_index_is_a_fault_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(SetupError, match="the package index cannot be reached"):
        prepared(tmp_path, "no-such-package")


def test_without_uv_the_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(SetupError, match=r"need uv, which is not installed. Next: pip install uv"):
        prepared(tmp_path, "tiny")


def test_two_commands_build_an_overlay_once(tmp_path: Path) -> None:
    threads = [threading.Thread(target=prepared, args=(tmp_path, "tiny")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(reports) == 1


def test_a_changed_wheel_is_another_package(tmp_path: Path, links: Path) -> None:
    path = str(links / "tiny-1.0-py3-none-any.whl")
    first = prepared(tmp_path, path)
    wheel(links, "tiny", "1.0", [], "answer = 43\n")
    second = prepared(tmp_path, path)
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
    environment = {**os.environ, "PYTHONPATH": "./there"}
    code = "import needs_tiny, os, tiny; os.chdir('/'); print(needs_tiny.answer + tiny.answer)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "84\n", done.stderr


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(overlay, "_build", full)
    with pytest.raises(SetupError, match=r"cannot be written to .*: No space left on device"):
        prepared(tmp_path, "tiny")


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "#!/bin/no-such-program\n"])
def test_a_program_that_is_no_python_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "program").write_text(text)
    (tmp_path / "program").chmod(0o755)
    with pytest.raises(UsageError, match=r"program is not a Python interpreter. Next: "):
        prepared(tmp_path, python=tmp_path / "program")


def test_an_old_python_is_refused_by_its_version(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\necho '[[3, 9], \"3.9.2\", []]'\n")
    (tmp_path / "program").chmod(0o755)
    with pytest.raises(UsageError, match=r"is Python 3\.9\.2: recording needs 3\.11 or later"):
        prepared(tmp_path, python=tmp_path / "program")


SCRIPT = """
import json, sys
import tiny
others = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")} - sys.stdlib_module_names
print(json.dumps([sys.prefix, sorted(others), tiny.answer]))
"""


def test_another_python_records_without_any_other_package(tmp_path: Path, bare: Path) -> None:
    """The driver's hooks and the worker daemon's, in an interpreter that has neither TensorFlow nor numpy."""
    job = prepared(tmp_path, "tiny", python=bare)
    assert job.versions == {"python": ".".join(map(str, sys.version_info[:3])), "tiny": "1.0"}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": f"{job.modules}:{paths.modules_dir()}"}
    entry = paths.shipped("jobs") / "user.py"
    done = subprocess.run(
        [bare, entry, "tfos", str(tmp_path / "spans"), str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    prefix, packages, answer = json.loads(done.stdout)
    assert (prefix, packages, answer) == (str(bare.parents[1]), ["dlobd", "tiny"], 42)
    (process,) = recorder.read_all(tmp_path / "spans")
    assert process.process.role == "driver"
    assert process.named("user code")
    for daemon in ("daemon", "stock_daemon"):
        code = f"import sys, dlobd.job.user.{daemon} as d; print([n for n in sys.modules if n in ('numpy', 'pyspark')])"
        done = subprocess.run([bare, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_directory_of_modules_has_no_other_package(tmp_path: Path) -> None:
    directory = paths.modules_dir()
    assert paths.modules_dir() == directory
    assert [path.name for path in directory.iterdir()] == ["dlobd"]
    assert sha256_of(directory / "dlobd" / "__init__.py") == sha256_of(paths.PACKAGE / "__init__.py")
