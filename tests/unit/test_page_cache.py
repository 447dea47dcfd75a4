"""The page cache before a run, with real files, and its line in the report."""

from __future__ import annotations

import dataclasses
import io
import mmap
import os
from pathlib import Path

import pytest
from rich.console import Console

from dlobd.errors import SetupError, UsageError
from dlobd.experiment import files
from dlobd.report.terminal import views
from dlobd.run import page_cache
from dlobd.run.place import external
from dlobd.run.place.this_machine import ThisMachine
from tests import records

PAGE = mmap.PAGESIZE
SIZE = 300 * PAGE + 123


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(SIZE))
    return path


def test_files_without_pages_and_external_clusters(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    nothing = page_cache.Residency(0, 0)
    assert page_cache.residency([tmp_path / "empty"]) == page_cache.residency([]) == nothing
    with pytest.raises(SetupError, match=r"The page cache of .*/gone cannot be prepared: No such file"):
        page_cache.prepared("cold", [tmp_path / "gone"])
    main = files.load("softmax-mnist", ["page_cache=cold"])
    with pytest.raises(UsageError, match="page_cache cold needs the embedded cluster"):
        external.check(main)
    external.check(dataclasses.replace(main, page_cache="warm"))


def test_pages_that_a_process_has_mapped_stay(on_disk: Path) -> None:
    with on_disk.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[0] + mapped[SIZE - 1] >= 0
        found = page_cache.prepared("cold", [on_disk])
    assert found["resident_bytes"] > 0


def test_the_files_of_a_job_without_hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "train"
    directory.mkdir()
    for name in ("part-00001", "part-00000", ".part-00002.part"):
        (directory / name).touch()
    assert ThisMachine().local_files(str(directory)) == [directory / "part-00000", directory / "part-00001"]


@pytest.mark.parametrize(
    ("cache", "launcher", "line"),
    [
        (("as-is", 45_100_000), "none", "training files in the page cache: 45.1 of 47.2 MB (as found): warm"),
        (("warm", 47_200_000), "yarn", "HDFS blocks of the training files in the page cache: 47.2 of 47.2 MB (read b"),
        (("cold", 0), "yarn", "HDFS blocks of the training files in the page cache: 0.0 of 47.2 MB (dropped before th"),
        (("cold", 4_096_000), "yarn", "4.1 of 47.2 MB (dropped before the run; the rest could not be dropped): cold"),
    ],
)
def test_the_report_has_one_line_of_it(cache: tuple[str, int], launcher: str, line: str) -> None:
    configuration = dataclasses.asdict(files.load("softmax-mnist")) | {"scheduler": launcher}
    known = {"asked": cache[0], "resident_bytes": cache[1], "total_bytes": 47_200_000, "before_resident_bytes": 1}
    for given, count in ((known, 1), (None, 0)):
        out = io.StringIO()
        run = records.run(configuration=configuration, page_cache=given)
        views.breakdown(run, Console(file=out, width=200))
        shown = " ".join(out.getvalue().split())
        assert shown.count("in the page cache") == count
        assert (line in shown) == bool(given)
