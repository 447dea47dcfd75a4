"""Speed-up over workers and sensitivity to settings, from runs with known results."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from analysis.studies import scaling, sensitivity
from analysis.studies.sensitivity import Sensitivity
from dlobd.compare.runset import Member, Repeat, RunSet
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.schema import NotMeasured
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


def test_curves_differ_by_other_settings() -> None:
    runs = [point(n, 1, 2, launcher=how, input=source) for n in (1, 2) for how, source in (("a", "x"), ("b", "y"))]
    alone = point(1, 1, 2, launcher="c")
    assert list(scaling.curves(chosen(*runs, alone, axes=("workers", "launcher")))) == ["launcher=a", "launcher=b"]
    assert list(scaling.curves(chosen(*runs))) == ["launcher=a input=x", "launcher=b input=y"]
    with pytest.raises(UsageError, match="no runs differ only in workers"):
        scaling.curves(chosen(point(2, 1, 1), point(2, 1, 1)))
    with pytest.raises(UsageError, match="different numbers of samples"):
        scaling.curves(chosen(point(1, 1, 1), point(2, 1, 1, train_samples=1200), axes=("workers",)))


def test_the_kind_of_scaling_and_its_warnings() -> None:
    assert "global batch of 200" in scaling.kind(chosen(point(1, 1, 1, batch_size=200), point(2, 1, 1, batch_size=100)))
    assert "batch of 100" in scaling.kind(chosen(point(1, 1, 1), point(2, 1, 1)))
    assert "Neither" in scaling.kind(chosen(point(1, 1, 1, batch_size=150), point(2, 1, 1, batch_size=100)))
    said = scaling.warnings(chosen(point(1, 1, 1), point(2, 1, 1)))
    assert "one machine of 2 cores" in said[0]
    assert "needs 6 repeats" in said[1]
    runs = [point(n, 1, 1) for n in (1, 2) for _ in range(6)]
    assert len(scaling.warnings(chosen(*runs))) == 1


AXES = ("workers", "launcher")


def sweep(wall_s: Callable[[int, str, int], float], repeats: int = 3) -> RunSet:
    cells = product((1, 2, 4), ("tfos", "barrier"), range(repeats))
    return runset(tuple(made({"spark": wall_s(n, how, r)}, workers=n, launcher=how) for n, how, r in cells), AXES)


def of_wall(chosen: RunSet) -> dict[str, Sensitivity]:
    return {one.factor: one for one in sensitivity.sensitivities(chosen) if one.figure == "wall"}


def test_a_factor_that_decides_all_has_1_and_one_without_effect_0() -> None:
    found = of_wall(sweep(lambda workers, launcher, repeat: {"tfos": 10, "barrier": 20}[launcher]))
    assert found["launcher"].first == pytest.approx(1, abs=0.01)
    assert found["launcher"].total == pytest.approx(1, abs=0.01)
    for other in ("workers", sensitivity.RUN_TO_RUN):
        assert found[other].first == pytest.approx(0, abs=1e-9)
        assert found[other].total == pytest.approx(0, abs=1e-9)
    assert found["launcher"].chance == pytest.approx(0)


def test_shares_are_those_of_the_variance() -> None:
    found = of_wall(sweep(lambda workers, launcher, repeat: 10 + 3 * workers + 4 * (launcher == "tfos")))
    assert found["workers"].first == pytest.approx(14 / 18, abs=0.01)
    assert found["launcher"].first == pytest.approx(4 / 18, abs=0.01)
    assert found["workers"].total == pytest.approx(14 / 18, abs=0.01)
    found = of_wall(sweep(lambda workers, launcher, repeat: {1: 10, 2: 30, 4: 10}[workers]))
    assert found["workers"].first == pytest.approx(1, abs=0.01)


def test_an_interaction_is_in_the_total_order_alone() -> None:
    walls = {(1, "tfos"): 10, (1, "barrier"): 20, (2, "tfos"): 20, (2, "barrier"): 10}
    cells = product((1, 2), ("tfos", "barrier"), range(3))
    runs = tuple(made({"spark": walls[n, how]}, workers=n, launcher=how) for n, how, _ in cells)
    found = of_wall(runset(runs, AXES))
    for factor in AXES:
        assert found[factor].first == pytest.approx(0, abs=0.02)
        assert found[factor].total == pytest.approx(1, abs=0.02)


def test_noise_belongs_to_runs_and_not_to_settings() -> None:
    noise = random.Random(4)
    found = of_wall(sweep(lambda workers, launcher, repeat: 100 + noise.gauss(0, 5), repeats=8))
    assert found[sensitivity.RUN_TO_RUN].total > 0.8
    assert found["workers"].first < 0.2
    assert found["workers"].chance == pytest.approx(2 / 47, abs=0.02)


def test_each_layer_and_the_throughput_are_figures() -> None:
    cells = list(product((1, 2), range(3)))
    runs = [made({"spark": 5, "tensorflow": 9 / n, "hdfs": 1 + r}, rate=100 * n, workers=n) for n, r in cells]
    every = sensitivity.sensitivities(runset(tuple(runs), ()))
    found = {(one.figure, one.factor): one for one in every}
    assert {figure for figure, _ in found} == {"wall", "TensorFlow", "HDFS", "samples/s"}
    assert found["TensorFlow", "workers"].first == pytest.approx(1, abs=0.01)
    assert found["HDFS", "workers"].first == pytest.approx(0, abs=1e-9)
    assert found["HDFS", sensitivity.RUN_TO_RUN].first == pytest.approx(1, abs=0.02)
    runs[0] = made({"spark": 5, "tensorflow": 9, "hdfs": 1}, workers=1)
    assert "samples/s" not in sensitivity.figures(runs)


def test_a_layer_without_a_part_is_0_and_an_unmeasured_layer_is_left_out() -> None:
    absent = (
        NotMeasured("yarn", "", "not used by this kind of run: plain processes"),
        NotMeasured("channel", "tensorflow", "inside a step"),
    )
    runs = []
    for launcher, seconds in (("tfos", {"yarn": 3, "channel": 1}), ("native", {})):
        for _ in range(3):
            run = made({"spark": 5, **seconds}, launcher=launcher)
            runs.append(run if seconds else dataclasses.replace(run, not_measured=absent))
    found = sensitivity.figures(runs)
    assert [found["YARN"](run) for run in runs] == [3, 3, 3, 0, 0, 0]
    assert "Channel" not in found


def test_incomplete_sweeps_are_refused() -> None:
    def flat(*_: Any) -> float:
        return 1.0

    with pytest.raises(UsageError, match=r"workers=1 launcher=barrier has 2\."):
        sensitivity.sensitivities(sweep(flat, repeats=2))
    whole = sweep(flat)
    with pytest.raises(UsageError, match=r"workers=4 launcher=tfos has 0\."):
        sensitivity.sensitivities(runset(tuple(r for r in whole.runs if _cell(r) != (4, "tfos")), AXES))
    with pytest.raises(UsageError, match=r"launcher has a single value \(tfos\)"):
        sensitivity.sensitivities(runset(tuple(r for r in whole.runs if _cell(r)[1] == "tfos"), AXES))
    with pytest.raises(UsageError, match="do not differ in any setting"):
        sensitivity.sensitivities(runset(tuple(r for r in whole.runs if _cell(r) == (1, "tfos")), ()))


def _cell(run: Any) -> tuple[int, str]:
    return run.configuration.workers, run.configuration.launcher
