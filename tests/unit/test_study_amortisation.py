"""Fixed cost and cost per epoch: exact without noise, covered by their intervals with noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from analysis.studies.amortisation import Line, amortisation, check_table, picture, prediction_table, table
from analysis.studies.runs import experiment as experiment_of
from analysis.studies.variation import variation
from dlobd.compare.runset import Member
from dlobd.errors import UsageError
from tests.repeats import experiment, member, runset

Truth = tuple[float, float]
"""Seconds of the fixed cost and of an epoch."""

NATIVE: Truth = (9.0, 1.5)
STACK: Truth = (35.0, 1.5)


class Lab:
    """Runs with known truth; arguments are standard deviations of runs and of epochs."""

    def __init__(
        self,
        seed: int = 0,
        outside_s: float = 0.0,
        first_s: float = 0.0,
        loop_share: float = 0.0,
        epoch_share: float = 0.0,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.outside_s, self.first_s = outside_s, first_s
        self.loop_share, self.epoch_share = loop_share, epoch_share
        self.number = 0

    def run(self, repeat: int, way: str, epochs: int, truth: Truth, bend_s: float = 0.0) -> Member:
        """Return a run; a second and last epoch is `bend_s` longer."""
        self.number += 1
        share = 1 + self.loop_share * self.random.normal() + self.epoch_share * self.random.normal(size=epochs)
        each_s = truth[1] * share
        each_s[0] += self.first_s * self.random.normal()
        each_s[-1] += bend_s * (epochs == 2)
        loop_s = float(each_s.sum())
        outside_s = truth[0] + self.outside_s * self.random.normal()
        layers = {"spark": outside_s, "tensorflow": loop_s}
        return member(repeat, self.number, experiment(way, epochs=epochs), layers, loop_s, epochs_s=each_s.tolist())

    def series(self, repeats: int = 6, stack: Truth = STACK, **changes: Any) -> list[Member]:
        """Return native and barrier runs with 1, 2 and 3 epochs in each repeat."""
        ways = (("native", NATIVE), ("barrier feed", stack))
        return [
            self.run(repeat, way, epochs, truth, **changes)
            for repeat in range(1, repeats + 1)
            for way, truth in ways
            for epochs in (1, 2, 3)
        ]


def line(runs: list[Member], label: str = "barrier feed") -> Line:
    return next(line for line in amortisation(runset(runs)).lines if line.label == label)


def test_without_noise_the_truth_is_found_exactly() -> None:
    """35 s and 1.5 s per epoch; 110 s for 50 epochs, 1.31 times native; below 5 % at the computed epoch."""
    found = amortisation(runset(Lab().series()))
    native, barrier = found.lines
    assert (native.label, barrier.label, barrier.repeats) == ("native", "barrier feed", 6)
    assert (barrier.fixed.value, barrier.epoch.value) == pytest.approx(STACK)
    assert (barrier.fixed.low, barrier.epoch.high) == pytest.approx(STACK)
    assert barrier.predicted_s(50).value == pytest.approx(110)
    (against,) = found.against
    assert against.ratio(50).value == pytest.approx(110 / 84)
    # 35 + 1.5 k = 1.05 (9 + 1.5 k)
    assert against.epochs_to().value == np.ceil((35 - 1.05 * 9) / 0.075) == 341
    assert found.warnings == ()


def test_an_epoch_that_costs_more_is_never_amortised() -> None:
    """With 6 % more per epoch the overhead never falls below 5 %; with less than native it does at once."""
    (dear,) = amortisation(runset(Lab().series(stack=(36.0, 1.59)))).against
    assert str(dear.epochs_to()) == "never"
    (cheap,) = amortisation(runset(Lab().series(stack=(8.0, 1.5)))).against
    assert cheap.epochs_to().value == 1
    late = table(amortisation(runset(Lab().series(stack=(36.0, 1.59)))))
    assert late.iloc[1]["overhead under 5% after, epochs"] == "never"


def test_variation_outside_the_loop_is_no_cost_of_an_epoch() -> None:
    barrier = line(Lab(1, outside_s=2.0).series())
    assert barrier.epoch.value == pytest.approx(1.5)
    assert barrier.epoch.half_width == pytest.approx(0)
    assert (barrier.fixed.half_width or 0) > 0.01
    barrier = line(Lab(1, first_s=0.5).series())
    assert barrier.epoch.value == pytest.approx(1.5)
    assert barrier.epoch.half_width == pytest.approx(0, abs=1e-6)
    assert (barrier.fixed.half_width or 0) > 0.005


def test_long_runs_are_checked_and_do_not_bend_the_line() -> None:
    lab = Lab(2, outside_s=0.5, loop_share=0.02)
    short = lab.series()
    long = [lab.run(1, "barrier feed", 8, STACK), lab.run(1, "barrier feed", 50, (36.0, 3.0))]
    found = amortisation(runset([*short, *long]))
    assert [(check.epochs, check.inside) for check in found.checks] == [(8, True), (50, False)]
    assert list(check_table(found)["it is"]) == ["inside", "outside"]
    assert found.lines[1].epoch == line(short).epoch
    assert found.lines[1].predicted_s(50) == line(short).predicted_s(50)
    rows = prediction_table(found, [8, 50]).to_dict("records")
    assert [(row[""], row["epochs"]) for row in rows] == [
        ("native", "8"),
        ("native", "50"),
        ("barrier feed", "8"),
        ("barrier feed", "50"),
    ]
    assert rows[1]["ratio to native"] == "1"
    assert rows[3]["half-width"].endswith("%")
    picture(found)


def test_more_repeats_narrow_the_line_but_not_the_prediction_of_a_run() -> None:
    """Thirty repeats whose loops vary by 5 %: a run of 50 epochs of 1.5 s still varies by 3.75 s."""
    barrier = line(Lab(4, loop_share=0.05).series(repeats=30))
    predicted = barrier.predicted_s(50)
    assert (barrier.epoch.half_width or 1) < 0.04
    assert 1.6 * 3.75 < (predicted.high - predicted.low) / 2 < 3 * 3.75


def test_the_variation_between_epochs_averages_out() -> None:
    """300 runs give 4 % between runs and 12 % between epochs; 50 epochs vary by hypot(4, 12 / sqrt(50)) %."""
    lab = Lab(5, loop_share=0.04, epoch_share=0.12)
    truths = (("native", NATIVE), ("barrier feed", (35.0, 3.0)))
    ways = [[lab.run(number, way, 3, truth).run for number in range(300)] for way, truth in truths]
    found = variation(ways, 3)
    assert found.within_runs == pytest.approx(0.12, rel=0.1)
    assert found.between_runs == pytest.approx(0.04, rel=0.3)
    assert found.degrees == 598
    assert found.of_run(50) == pytest.approx(np.hypot(found.between_runs, found.within_runs / np.sqrt(50)))
    assert variation(ways, 2) is None
    assert variation([ways[0][:1]], 3) is None


def test_without_runs_of_three_epochs_a_slow_run_is_slow_throughout() -> None:
    lab = Lab(5, loop_share=0.04)
    runs = [lab.run(repeat, "barrier feed", epochs, STACK) for repeat in range(1, 31) for epochs in (1, 2)]
    found = line(runs).variation
    assert (found.within_runs, found.between_runs, found.degrees) == (0, pytest.approx(0.04, rel=0.5), 29)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [{"loop_share": 0.04}, {"loop_share": 0.03, "epoch_share": 0.12}])
def test_intervals_contain_the_truth_and_predictions_contain_new_runs(shares: dict[str, float]) -> None:
    """100 experiments of 6 repeats: at least 90 intervals contain the truth, and 50 epochs are known within 20 %."""
    inside = dict.fromkeys(("fixed", "epoch", "8", "50"), 0)
    widths = []
    for seed in range(100):
        lab = Lab(seed, outside_s=1.5, **shares)
        barrier = line(lab.series())
        inside["fixed"] += bool(barrier.fixed.holds(STACK[0]))
        inside["epoch"] += bool(barrier.epoch.holds(STACK[1]))
        for epochs in (8, 50):
            new = lab.run(7, "barrier feed", epochs, STACK).run
            inside[str(epochs)] += bool(barrier.predicted_s(epochs).holds((new.wall_ns or 0) / 1e9))
        widths.append(barrier.predicted_s(50).half_width or 1)
    assert min(inside.values()) >= 90, inside
    assert np.median(widths) <= 0.2


@pytest.mark.slow
def test_the_epochs_until_the_overhead_is_small_are_covered() -> None:
    stack = (20.0, 1.4)
    truth = np.ceil((20 - 1.05 * 9) / (1.05 * 1.5 - 1.4))
    held = {"epochs": 0, "ratio": 0}
    for seed in range(50):
        (against,) = amortisation(runset(Lab(seed, outside_s=0.5, loop_share=0.02).series(stack=stack))).against
        held["epochs"] += bool(against.epochs_to().holds(truth))
        held["ratio"] += bool(against.ratio(50).holds((20 + 50 * 1.4) / (9 + 50 * 1.5)))
    assert min(held.values()) >= 45, held


def test_departures_from_the_line_are_warnings() -> None:
    bent = amortisation(runset(Lab().series(bend_s=1.0))).warnings
    assert any("the second of 2 epochs is +1.00 s off the mean of the second and third of 3" in each for each in bent)
    growing = [
        Lab().run(repeat, "barrier feed", epochs, (36.0 + epochs, 1.5)) for repeat in range(1, 7) for epochs in (1, 3)
    ]
    assert "start-up, first epoch and teardown change by +1.00 s per epoch" in line_warnings(growing)
    assert "an interval needs 6 repeats; there are 4" in line_warnings(Lab().series(repeats=4))
    flat = Lab(3, outside_s=1.0, loop_share=1.5).series(stack=(36.0, 0.01))
    assert "the cost of an epoch is not distinguishable from 0" in line_warnings(flat)


def line_warnings(runs: list[Member]) -> str:
    """Return all warnings as one line. Runs of several labs share IDs and times, which does not matter."""
    return " ".join(amortisation(runset(runs)).warnings)


@pytest.mark.parametrize(("failed", "repeats"), [((3,), 6), ((1,), 6), ((2, 3), 5), ((1, 2, 3), 5)])
def test_a_repeat_counts_with_two_runs(failed: tuple[int, ...], repeats: int) -> None:
    every = [
        dataclasses.replace(one, run=dataclasses.replace(one.run, status="failed", reason="died"))
        if one.repeat.number == 1
        and experiment_of(one.run).launcher == "barrier"
        and experiment_of(one.run).epochs in failed
        else one
        for one in Lab().series()
    ]
    found = amortisation(runset(every))
    assert [line.repeats for line in found.lines] == [6, repeats]
    assert found.against[0].repeats == repeats
    assert (found.lines[1].fixed.value, found.lines[1].epoch.value) == pytest.approx(STACK)
    assert f"{len(failed)} of 36 runs: " in found.warnings[0]


def test_runs_without_a_line_are_refused() -> None:
    lab = Lab()
    one = [lab.run(repeat, "native", 2, NATIVE) for repeat in range(1, 7)]
    with pytest.raises(UsageError, match="native has no repeat with runs of several numbers of epochs up to 3"):
        amortisation(runset(one))
    other = member(1, 50, experiment("native", epochs=3, batch_size=50), {"tensorflow": 5.0}, 1.0)
    with pytest.raises(UsageError, match=r"did different work: batch_size \(100, 50\)"):
        amortisation(runset([*one, other]))
    limited = member(1, 50, experiment("native", max_steps=7), {"tensorflow": 5.0}, 1.0)
    with pytest.raises(UsageError, match="These runs end by max_steps"):
        amortisation(runset([limited]))
    with pytest.raises(UsageError, match="has no end times of its epochs"):
        amortisation(runset([*one, member(1, 51, experiment("native", epochs=3), {"tensorflow": 5.0}, 1.0)]))
    with pytest.raises(UsageError, match="Repeat 1 has two runs with equal settings"):
        amortisation(runset([*one, lab.run(1, "native", 2, NATIVE)]))
