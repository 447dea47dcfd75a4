"""Speed-up and efficiency over workers, from runs with known results."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.studies import scaling
from dlobd.compare.runset import Member, Repeat, RunSet
from dlobd.errors import UsageError
from dlobd.record.run import Run
from tests.chosen_runs import made, runset


def chosen(*runs: Run, axes: tuple[str, ...] = ()) -> RunSet:
    return runset(runs, axes)


def point(workers: int, start_s: float, train_s: float, **settings: Any) -> Run:
    layers = {"spark": start_s, "tensorflow": train_s}
    return made(layers, rate=6000 / train_s, workers=workers, **settings)


def test_speed_up_and_efficiency() -> None:
    drifts = (0, 0.01, -0.01, 0.3, 0.4, 5)
    runs = [point(n, 10 + drift, 20 / n) for n in (1, 2) for drift in drifts]
    (curve,) = scaling.curves(chosen(*runs)).values()
    one, two = curve
    assert (one.workers, one.runs, one.speed_ups) == (1, 6, ())
    assert two.speed_ups == pytest.approx([(30 + drift) / (20 + drift) for drift in drifts])
    assert two.trainings == pytest.approx([2] * 6)
    assert two.efficiencies(two.speed_ups)[0] == pytest.approx(0.75)
    assert two.efficiencies(two.trainings) == pytest.approx([1] * 6)
    row = scaling.table({"x": curve}).iloc[1]
    assert row["speed-up"] == "1.5 (1.4 to 1.5; 96.9 %)"
    assert row["efficiency of training"] == "1 (1 to 1; 96.9 %)"
    assert list(scaling.table({"x": curve}).iloc[0])[-2:] == ["1", "1"]
    assert two.layers["spark"] == pytest.approx(10.95)
    assert two.layers["tensorflow"] == pytest.approx(10)


def test_speed_ups_compare_runs_of_the_same_repeat() -> None:
    one, two = ([point(n, start_s / n, 1 / n) for start_s in (9, 19, 79)] for n in (1, 2))
    del one[1]
    members = [Member(run, Repeat("key", n)) for run, n in zip([*one, *two], (1, 3, 1, 2, 3), strict=True)]
    (curve,) = scaling.curves(RunSet("", tuple(members))).values()
    assert curve[1].speed_ups == pytest.approx([2, 2])
    twice = RunSet("", tuple(Member(run, Repeat("key", 1)) for run in (*one, *two)))
    with pytest.raises(UsageError, match="Repeat 1 has two runs with equal settings"):
        scaling.curves(twice)


def test_speed_up_counts_from_the_fewest_workers_and_needs_throughput() -> None:
    (curve,) = scaling.curves(chosen(point(8, 0, 10), point(2, 0, 20))).values()
    assert [one.workers for one in curve] == [2, 8]
    assert curve[1].efficiencies(curve[1].speed_ups) == pytest.approx([0.5])
    assert scaling.table({"x": curve})["efficiency"][1] == "0.5"
    (curve,) = scaling.curves(chosen(*(made({"spark": 1}, workers=n) for n in (1, 2)))).values()
    assert curve[1].trainings == []
    assert scaling.table({"x": curve})["of training"][1] == "-"


def test_other_settings_make_other_curves() -> None:
    runs = [point(n, 1, 2, launcher=how, input=source) for n in (1, 2) for how, source in (("a", "x"), ("b", "y"))]
    alone = point(1, 1, 2, launcher="c")
    assert list(scaling.curves(chosen(*runs, alone, axes=("workers", "launcher")))) == ["launcher=a", "launcher=b"]
    assert list(scaling.curves(chosen(*runs))) == ["launcher=a input=x", "launcher=b input=y"]


def test_the_kind_of_scaling_and_its_warnings() -> None:
    assert "global batch of 200" in scaling.kind(chosen(point(1, 1, 1, batch_size=200), point(2, 1, 1, batch_size=100)))
    assert "batch of 100" in scaling.kind(chosen(point(1, 1, 1), point(2, 1, 1)))
    assert "Neither" in scaling.kind(chosen(point(1, 1, 1, batch_size=150), point(2, 1, 1, batch_size=100)))
    said = scaling.warnings(chosen(point(1, 1, 1), point(2, 1, 1)))
    assert "one machine of 2 cores" in said[0]
    assert "needs 6 repeats" in said[1]
    runs = [point(n, 1, 1) for n in (1, 2) for _ in range(6)]
    assert len(scaling.warnings(chosen(*runs))) == 1


def test_incomparable_runs_are_refused() -> None:
    with pytest.raises(UsageError, match="no runs differ in workers alone"):
        scaling.curves(chosen(point(2, 1, 1), point(2, 1, 1)))
    with pytest.raises(UsageError, match="different numbers of samples"):
        scaling.curves(chosen(point(1, 1, 1), point(2, 1, 1, train_samples=1200), axes=("workers",)))
