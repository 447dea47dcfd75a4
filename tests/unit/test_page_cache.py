"""The page cache before a run and the noise of a machine."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dlobd.bundle.noise import run_variation
from dlobd.bundle.store import Bundle
from dlobd.errors import SetupError, UsageError
from dlobd.experiment import files
from dlobd.report.sentences import smallest_share
from dlobd.report.terminal import views
from dlobd.run import machine_noise, page_cache
from dlobd.run.machine_noise import Noise
from dlobd.run.place import external
from dlobd.run.place.this_machine import ThisMachine
from tests import records
from tests.records import run_record


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


QUIET = Noise(50, 60_000, 90_000, 0.01, 1.02, 0.0, 20_000, 40_000, 0.1)
S = 10**9


def after(*walls_s: float) -> Noise:
    return dataclasses.replace(QUIET, earlier_walls_ns=tuple(int(wall_s * S) for wall_s in walls_s))


def test_more_runs_show_smaller_effects() -> None:
    near = after(40, 41, 42, 43, 44, 45)
    variation = run_variation(near.earlier_walls_ns or ())
    assert variation == pytest.approx(1.8708 / 42.5, rel=1e-4)
    assert smallest_share(near, 64) == pytest.approx((smallest_share(near, 16) or 0) / 2, rel=0.05)
    assert smallest_share(near, 64) == pytest.approx(2.8 * (variation or 0) * (2 / 64) ** 0.5, rel=0.02)
    assert (smallest_share(after(30, 35, 40, 45, 50, 55), 6) or 0) > 2 * (smallest_share(near, 6) or 1)
    assert smallest_share(QUIET, 6) is smallest_share(after(40, 41, 42, 43, 44), 6) is None
    assert smallest_share(near, 1) is None


def stored(out: Path, number: int, **changes: Any) -> Bundle:
    run_id = f"20260102T03{number:02}05Z-0a1b"
    bundle = Bundle(out / "experiment" / run_id)
    bundle.path.mkdir(parents=True)
    (bundle.path / "run.json").write_text(json.dumps(run_record(run_id, **changes)))
    return bundle


def test_earlier_runs_are_those_of_the_experiment_and_the_machine(tmp_path: Path) -> None:
    here = {"host": "a", "processor": "p", "cores": 2, "memory_bytes": 1, "kernel": "6"}
    mine = {"experiment_key": "k", "platform": here}
    for number, wall_ns in enumerate((5 * S, 7 * S, 6 * S), 1):
        stored(tmp_path, number, wall_ns=wall_ns, **mine)
    stored(tmp_path, 4, wall_ns=S, **mine | {"experiment_key": "other"})
    stored(tmp_path, 5, wall_ns=S, **mine | {"platform": here | {"host": "b"}})
    stored(tmp_path, 6, wall_ns=S, **mine, status="failed", reason="died")
    for number, text in ((7, "{"), (8, "[]"), (9, '{"status": "ok", "wall_ns": 1}')):
        (stored(tmp_path, number).path / "run.json").write_text(text)
    new = stored(tmp_path, 10, wall_ns=S, **mine)
    (tmp_path / "experiment" / "latest").symlink_to(new.path)
    record = json.loads((new.path / "run.json").read_text())
    assert machine_noise.earlier_walls_ns(new, record) == [5 * S, 7 * S, 6 * S]
    assert machine_noise.earlier_walls_ns(Bundle(tmp_path / "none" / new.run_id), record) == []


def test_the_number_of_earlier_runs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_noise, "MAX_BUNDLES", 2)
    for number in range(4):
        bundle = stored(tmp_path, number, wall_ns=(number + 1) * S)
    record = json.loads((bundle.path / "run.json").read_text())
    assert machine_noise.earlier_walls_ns(bundle, record) == [2 * S, 3 * S]
