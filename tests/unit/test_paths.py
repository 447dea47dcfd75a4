"""Names that Spark's and Hadoop's scripts take as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dlobd import paths
from dlobd.errors import SetupError

AWKWARD = ["a b", "a'b", 'a"b', "a,b", "a:b", "a$b", "a%20b", "a#b", "aé", "a;b", "a(b)", "a*", "a\nb"]


@pytest.fixture(autouse=True)
def _own_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "TEMPORARY", tmp_path)


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
