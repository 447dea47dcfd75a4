"""Pages of real files that another process drops."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from dlobd.run import page_cache

PAGE = mmap.PAGESIZE
SIZE = 300 * PAGE + 123


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """A file of random bytes whose last page is not full."""
    path = tmp_path / "data"
    path.write_bytes(os.urandom(SIZE))
    return path


def _in_memory(path: Path) -> bool:
    """Whether its file system is memory, of which nothing can be dropped."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True)
    return kind.stdout.strip() in ("tmpfs", "ramfs")


def test_what_was_dropped_is_not_resident_until_it_is_read(on_disk: Path) -> None:
    """Also dirty pages: they are written first. The figures are what is there, not what was asked for."""
    stays = SIZE if _in_memory(on_disk) else 0
    assert page_cache.prepared("as-is", [on_disk])["resident_bytes"] == SIZE
    cold = page_cache.prepared("cold", [on_disk])
    assert cold == {
        "asked": "cold",
        "resident_bytes": stays,
        "total_bytes": SIZE,
        "before_resident_bytes": SIZE,
    }
    assert page_cache.prepared("as-is", [on_disk])["resident_bytes"] == stays
    warm = page_cache.prepared("warm", [on_disk])
    assert (warm["before_resident_bytes"], warm["resident_bytes"]) == (stays, SIZE)


def test_a_part_is_counted_by_pages(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a file counts as long as it is, not as its page; a large file is looked at in stretches."""
    page_cache.drop([on_disk])
    with on_disk.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        file.seek(300 * PAGE)
        file.read(1)
    found = page_cache.residency([on_disk])
    assert found == page_cache.Residency(SIZE if _in_memory(on_disk) else 123, SIZE)
    page_cache.read([on_disk])
    monkeypatch.setattr(page_cache, "WINDOW_BYTES", 7 * PAGE)
    assert page_cache.residency([on_disk, on_disk]) == page_cache.Residency(2 * SIZE, 2 * SIZE)


def test_pages_that_a_process_has_mapped_stay(on_disk: Path) -> None:
    with on_disk.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[0] + mapped[SIZE - 1] >= 0
        found = page_cache.prepared("cold", [on_disk])
    assert found["resident_bytes"] > 0
