"""The identity of this dlobd, versions of packages, and paths that Spark's and Hadoop's scripts accept."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import pytest

import dlobd
from dlobd import __version__, installation, paths
from dlobd.errors import SetupError
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


AWKWARD = ["a b", "a'b", 'a"b', "a,b", "a:b", "a$b", "a%20b", "a#b", "aé", "a;b", "a(b)", "a*", "a\nb"]


@pytest.fixture(autouse=True)
def _own_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "TEMPORARY", tmp_path)
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a state"))


def test_plain_paths_stay_and_long_ones_have_a_link(tmp_path: Path) -> None:
    assert paths.plain(Path("/home/me/my-project_1.2/runs")) == Path("/home/me/my-project_1.2/runs")
    assert not paths.links_dir().exists()
    found = paths.plain(Path("/x" * 60), longest=100)
    assert found.parent == paths.links_dir()
    assert found.readlink() == Path("/x" * 60)


@pytest.mark.parametrize("name", AWKWARD)
def test_an_awkward_path_is_reached_by_a_link(name: str, tmp_path: Path) -> None:
    runs = tmp_path / name / "runs"
    runs.mkdir(parents=True)
    (runs / "file").write_text("here")
    found = paths.plain(runs)
    assert (found / "file").read_text() == "here"
    assert paths._PLAIN.fullmatch(str(found))
    assert found.parent == paths.plain(tmp_path / name)
    assert paths.plain(runs) == found
    assert len(list(paths.links_dir().iterdir())) == 1


def test_a_directory_is_made_through_its_link(tmp_path: Path) -> None:
    found = paths.plain(tmp_path / "not yet")
    paths.make_writable(found / "below")
    paths.make_writable(found)
    assert (tmp_path / "not yet" / "below").is_dir()


def test_the_links_of_a_cache_are_in_it_or_in_the_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("DLOBD_CACHE", "/home/me/.cache/dlobd")
    assert paths.links_dir() == Path("/home/me/.cache/dlobd/links")
    homes = []
    for cache in ("/a b", "/another b", "/" + "x" * 60):
        monkeypatch.setenv("DLOBD_CACHE", cache)
        homes.append(paths.links_dir())
    assert {path.parent for path in homes} == {Path("/state/dlobd")}
    assert len(set(homes)) == 3, "each cache has its own"
    monkeypatch.setenv("XDG_STATE_HOME", "/my state")
    assert paths.links_dir().name.startswith(f"dlobd-{os.getuid()}-")


def test_a_broken_link_is_repaired(tmp_path: Path) -> None:
    """A daemon that lost its link writes a directory there."""
    found = paths.plain(tmp_path / "a b")

    def is_repaired() -> bool:
        return paths.plain(tmp_path / "a b") == found and found.readlink() == tmp_path / "a b"

    shutil.rmtree(found.parent)
    assert is_repaired()
    found.unlink()
    found.symlink_to("elsewhere")
    assert is_repaired()
    found.unlink()
    (found / "debris").mkdir(parents=True)
    assert is_repaired()
    assert list(found.parent.iterdir()) == [found]


def test_links_of_other_users_are_not_used(tmp_path: Path) -> None:
    paths.links_dir().mkdir(mode=0o700)
    paths.links_dir().chmod(0o777)
    with pytest.raises(
        SetupError, match=r"/a b contains characters that .* only this user can write to\. Next: choose a path"
    ):
        paths.plain(Path("/a b"))
    (tmp_path / "a b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    with pytest.raises(SetupError, match="only this user can write to"):
        paths.resolved_plain(tmp_path / "link" / "conf")
    paths.links_dir().rmdir()
    paths.links_dir().symlink_to(tmp_path)
    with pytest.raises(SetupError, match="only this user can write to"):
        paths.plain(Path("/a b"))


def test_the_interpreter_keeps_its_virtual_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    assert paths.python() == tmp_path / "venv" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a b" / "venv" / "bin" / "python"))
    found = paths.python()
    assert found.parts[-3:] == ("venv", "bin", "python")
    assert os.readlink(found.parents[2]) == str(tmp_path / "a b")


def test_the_environment_sets_the_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("DLOBD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert paths.cache_dir() == Path("/h/.cache/dlobd")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert paths.cache_dir() == Path("/h/.cache/dlobd")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert paths.cache_dir() == Path("/x/dlobd")
    monkeypatch.setenv("DLOBD_CACHE", "~/own")
    assert paths.cache_dir() == Path("/h/own")


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"file/below cannot be used.*DLOBD_CACHE"):
        paths.make_writable(tmp_path / "file" / "below")
    with pytest.raises(SetupError, match="cannot be used"), paths.locked(tmp_path / "file" / ".lock"):
        pass
    with paths.locked(tmp_path / "new" / ".lock"):
        assert (tmp_path / "new").is_dir()
