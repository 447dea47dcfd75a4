from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import SetupError
from dlobd.paths import cache_dir, locked, make_writable


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLOBD_CACHE wins over XDG_CACHE_HOME, which wins over ~/.cache; a relative XDG path is ignored."""
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("DLOBD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path("/h/.cache/dlobd")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == Path("/h/.cache/dlobd")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_dir() == Path("/x/dlobd")
    monkeypatch.setenv("DLOBD_CACHE", "~/own")
    assert cache_dir() == Path("/h/own")


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """A file where the directory should be is a SetupError that names it and the remedy, from the lock too."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"file/below cannot be used.*DLOBD_CACHE"):
        make_writable(tmp_path / "file" / "below")
    with pytest.raises(SetupError, match="cannot be used"), locked(tmp_path / "file" / ".lock"):
        pass
    with locked(tmp_path / "new" / ".lock"):
        assert (tmp_path / "new").is_dir()
