"""The recording overhead: the order of the runs, the figures, and the report."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dlobd import tracing
from dlobd.bundle import store
from dlobd.compare.median import Estimate
from dlobd.experiment import files
from dlobd.experiment.series import Cell, shuffled
from dlobd.run import runner
from dlobd.selftest import overhead, step_loop
from dlobd.selftest.overhead import Measurement
from dlobd.selftest.step_loop import Loop
from tests.records import run_record


def runs(on_ns: list[int | None], off_ns: list[int | None]) -> list[Measurement]:
    """Return a run per figure; walls are ten times as long as loops."""
    found = []
    for way, each in (("on", on_ns), ("off", off_ns)):
        for repeat, ns in enumerate(each, 1):
            wall_ns = ns * 10 if ns is not None else None
            status = "ok" if ns is not None else "failed"
            found.append(Measurement(repeat, way, f"/b/{way}{repeat}", status, wall_ns, ns, 7_000_000, 100, 3.0))
    return found


def test_each_repeat_has_both_runs_in_an_order_by_the_seed() -> None:
    order = shuffled(overhead.WAYS, 20, 3)
    assert order == shuffled(overhead.WAYS, 20, 3) != shuffled(overhead.WAYS, 20, 4)
    assert sorted(order) == [Cell(repeat, way) for repeat in range(1, 21) for way in ("off", "on")]
    assert {order[2 * k].point for k in range(20)} == {"on", "off"}


def test_difference_and_ratio_compare_the_runs_of_a_repeat() -> None:
    found = overhead.difference(runs([110, None, 130, 150], [100, 100, 100, 120]), "loop_ns")
    assert found.pairs == (10, 30, 30)
    assert (found.on.n, found.off.n) == (3, 4)
    assert found.ratio == Estimate(1.25)
    more = overhead.difference(runs([110, 120, 130, 140, 150, 160], [100] * 6), "loop_ns").ratio
    assert more == Estimate(1.35, 1.1, 1.6, 31 / 32)


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("on", "off", "says"),
    [
        (
            [1.05, 1.06, 1.05, 1.07, 1.06, 1.05],
            [1.0, 1.0, 1.001, 1.0, 1.0, 1.0],
            "warning: exceeds the budget",
        ),
        (
            [1.001, 1.002, 1.0, 1.001, 1.002, 1.0],
            [1.0, 1.0, 1.001, 1.0, 1.0, 1.0],
            "within the budget of 1 %",
        ),
        (
            [1.2, 0.8, 1.1, 0.9, 1.0, 1.0],
            [1.1, 0.9, 1.0, 0.8, 1.2, 1.0],
            "inconclusive for the budget of 1 %",
        ),
    ],
)
def test_the_verdict_follows_from_the_interval(on: list[float], off: list[float], says: str) -> None:
    lines = overhead.report(runs([int(s * SECOND) for s in on], [int(s * SECOND) for s in off]), [])
    assert [line.partition(":")[0] for line in lines[:4]] == ["wall time"] * 2 + ["training loop"] * 2
    assert " s with recording, " in lines[2]
    assert says in lines[3]
    assert "96.9 % interval" in lines[3]
    assert lines[4] == "estimated in the training loop: 0.0070 s (number of spans times the cost of a span)"


def test_too_few_and_failed_runs_are_reported() -> None:
    five = overhead.report(runs([SECOND] * 5, [SECOND] * 5), [])
    assert "wall time: no interval for fewer than 6 repeats" in five
    assert "a step: unknown, because its loop failed" in five
    none = overhead.report(runs([None], [SECOND]), [])
    assert "wall time: unknown, because no repeat has both runs" in none
    assert "not counted: /b/on1 (failed)" in none


@pytest.mark.parametrize(
    ("added_ns", "says"),
    [
        (
            20_000,
            "0.20 % of the step time of these runs, 96.9 % interval 0.20 % to 0.20 %: within the budget of 1 %",
        ),
        (
            200_000,
            "2.00 % of the step time of these runs, 96.9 % interval 2.00 % to 2.00 %: warning: exceeds the budget",
        ),
    ],
)
def test_a_step_of_the_loop_is_compared_with_a_step_of_the_runs(added_ns: int, says: str) -> None:
    """The drift cancels in the differences of pairs. Runs of 100 steps per second have steps of 10 ms."""
    drift = [1_000_000 + 50_000 * k for k in range(20)]
    loop = Loop(tuple(map(float, drift)), tuple(float(ns + added_ns) for ns in drift))
    three = runs([SECOND] * 3, [SECOND] * 3)
    lines = [line for line in overhead.report(three, [loop] * 6) if line.startswith("a step: ")]
    us = added_ns / 1000
    turns = "in 6 processes of 20 pairs of 50-step blocks; a step takes 1475 us without recording"
    assert lines[0] == (f"a step: +{us:.1f} us with recording, 96.9 % interval +{us:.1f} to +{us:.1f} us, {turns}")
    assert lines[1].startswith(f"a step: {says}")
    assert overhead.document(three, [loop] * 6, 0)["step"]["share"]["value"] == pytest.approx(added_ns / 10_000_000)


def test_few_processes_have_no_interval() -> None:
    loops = [Loop((1e6,) * 500, (1e6 + ns,) * 500) for ns in (10_000, 30_000, 20_000)]
    lines = [line for line in overhead.report(runs([SECOND], [SECOND]), loops) if line.startswith("a step: ")]
    assert lines[0].startswith("a step: +20.0 us with recording, +10.0 to +30.0 us in 3 processes of 500 pairs")
    assert lines[1:] == ["a step: no interval for fewer than 6 processes"]


def test_the_feed_alternates_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WARM_UP_STEPS", 3), ("PAIRS", 4), ("BLOCK_STEPS", 5)):
        monkeypatch.setattr(step_loop, name, value)
    recorder = tracing.Recorder(tmp_path, "chief", threaded=False)
    monkeypatch.setattr(tracing, "_recorder", recorder)
    feed = step_loop.AlternatingFeed(b"block", recorder, 1)
    for _ in range(3 + 2 * 4 * 5 + 1):
        if tracing._recorder is not None:
            time.sleep(0.002)
        assert feed.next_block() == b"block"
    recorder.close()
    loop = feed.loop()
    assert (len(loop.on_ns), len(loop.off_ns)) == (4, 4)
    assert min(loop.on_ns) > max(loop.off_ns)
    written = [line for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines() if '"get"' in line]
    assert len(written) == 3 + 4 * 5 + 1  # before the first turn, in each block that records, and after the last


def test_the_switch_is_set_for_a_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def run(point: Any, out: Path, progress: Any, cluster: Any) -> Path:
        seen.append(os.environ.get(tracing.SWITCH))
        bundle = store.create(out, point.name)
        record = run_record(bundle.run_id, status="ok" if len(seen) > 1 else "invalid", reason=None)
        record["metrics"]["loop_ns"] = 5 * len(seen)
        bundle.write(record)
        return bundle.path

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(overhead, "settled_busy_percent", lambda: 1.5)
    monkeypatch.setenv(tracing.SWITCH, "kept")
    base = files.load("softmax-mnist-quick", ["launcher=native", "scheduler=none", "input=read"])
    told: list[str] = []
    found = overhead.measure(dataclasses.replace(base, name="x"), 2, 1, tmp_path, lambda m: None, told.append)
    assert seen == [None if way == "on" else "off" for way in (cell.point for cell in shuffled(overhead.WAYS, 2, 1))]
    assert os.environ[tracing.SWITCH] == "kept"
    assert [one.loop_ns for one in found] == [None, 10, 15, 20]
    assert [one.wall_ns for one in found] == [None] + 3 * [run_record()["wall_ns"]]
    assert len(told) == 4
    assert told[0].startswith("run 1 of 4: recording ")
    document = json.loads(json.dumps(overhead.document(found, [], 1)))
    assert document["seed"] == 1
    assert len(document["runs"]) == 4
    assert set(document["differences"]) == {"wall time", "training loop"}
