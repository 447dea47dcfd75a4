"""The identity of this dlobd, and the versions of what takes part in a run."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import pytest

import dlobd
from dlobd import __version__, installation, paths
from dlobd.run import provenance


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "dlobd"
    shutil.copytree(paths.PACKAGE / "tracing", copy / "tracing", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__init__.py").write_text('__version__ = "0"\n')
    monkeypatch.setattr(installation, "PACKAGE", copy)
    return copy


def digest() -> str:
    return installation.digest(installation.files())


def test_the_version_is_the_number_and_the_digest_of_files() -> None:
    this = installation.this()
    number, _, content = this.version.partition("+")
    assert number == __version__
    assert digest().startswith(content)
    assert len(content) == 12
    assert Path(this.python).samefile(sys.executable)
    assert this == installation.this()
    assert str(this) == f"dlobd {this.version} at {this.python}"


def test_a_changed_file_is_another_dlobd(package: Path) -> None:
    seen = [digest()]
    clock = package / "tracing" / "clock.py"
    text = clock.read_text()
    clock.write_text(text + "\n")
    seen.append(digest())
    clock.rename(clock.with_name("clocks.py"))
    seen.append(digest())
    clock.with_name("clocks.py").unlink()
    seen.append(digest())
    (package / "empty.json").touch()
    seen.append(digest())
    assert len(set(seen)) == len(seen)
    (package / "empty.json").unlink()
    clock.write_text(text)
    assert digest() == seen[0]


def test_compiled_and_shipped_files_do_not_change_the_version(package: Path) -> None:
    """A checkout has `data/` beside the package, a wheel has it in `_shipped`: both are one dlobd."""
    before, files = digest(), installation.files()
    for name in ("__pycache__/a.pyc", "tracing/__pycache__/clock.pyc", "_shipped/data/mnist/README.md"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("x")
    assert (digest(), installation.files()) == (before, files)


def test_where_it_lies_does_not_count(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest()
    other = tmp_path / "elsewhere" / "dlobd"
    shutil.copytree(package, other, copy_function=shutil.copyfile)
    monkeypatch.setattr(installation, "PACKAGE", other)
    assert digest() == before


def test_every_package_has_its_version_or_null(monkeypatch: pytest.MonkeyPatch) -> None:
    found = provenance.versions("17.0.1")
    assert (found["dlobd"], found["java"], found["hadoop"]) == (dlobd.__version__, "17.0.1", provenance.HADOOP_VERSION)
    assert found["python"] == platform.python_version()
    assert found["tensorflowonspark"] == "2.2.5"
    assert provenance.versions(None)["java"] is None
    monkeypatch.setattr(provenance, "_PACKAGES", ("no-such-package-of-anybody", "numpy"))
    found = provenance.versions(None)
    assert found["no-such-package-of-anybody"] is None
    assert found["numpy"]
