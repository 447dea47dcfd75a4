"""The self-test's own parts: an attribution that is wrong must fail it, and a delay must be what it is said to be."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from records import run as run_of
from rich.console import Console
from strategies import span

from dlobd.attribution.attribute import attribute
from dlobd.faults.injection_log import Injection
from dlobd.layers import LAYERS
from dlobd.schema import Trace
from dlobd.selftest import paired_controls, plans, score
from dlobd.selftest import report as report
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.runs import SelftestRun

S = 1_000_000_000
OK = run_of()


def found(*delays: tuple[str, int, int]) -> list[score.Recovery]:
    """Delays (point, start, end) against a run of spark [0, 10), yarn [10, 20), a hole, tensorflow [25, 40) s."""
    spans = (
        span("a", "spark", 0, 10 * S),
        span("b", "yarn", 10 * S, 20 * S),
        span("c", "tensorflow", 25 * S, 40 * S),
        span("w", "feed", 30 * S, 32 * S, waits_for=("nobody",)),
    )
    attribution = attribute(Trace(0, 40 * S, spans))
    return [score.blame(Injection(point, end - start, start, end), attribution, "run") for point, start, end in delays]


def test_each_delay_is_looked_up_in_the_attributed_wall() -> None:
    """Overlap by layer; holes, unexplained time and what lies outside of the window are nobody's success."""
    inside, across, hole, waits, outside = found(
        ("yarn/queue", 11 * S, 12 * S),
        ("yarn/localise", 19 * S, 21 * S),
        ("spark/slow-task", 21 * S, 22 * S),
        ("feed/get", 30 * S, 32 * S),
        ("tensorflow/step", 39 * S, 41 * S),
    )
    assert (inside.blamed, inside.ok) == ({"yarn": S}, True)
    assert (across.blamed, across.ok) == ({"yarn": S, "unattributed": S}, False)
    assert (hole.blamed, hole.ok) == ({"unattributed": S}, False)
    assert (waits.blamed, waits.ok) == ({"unexplained": 2 * S}, False)
    assert (outside.blamed, outside.ok) == ({"tensorflow": S, "unattributed": S}, False)


def test_the_target_has_two_sides() -> None:
    """95 % in the right layer is enough, unless 2 % are in one wrong layer."""
    start = 10 * S
    just = [Injection("spark/slow-task", S, start - S + extra, start + extra) for extra in (19_000_000, 21_000_000)]
    spans = (span("a", "spark", 0, start), span("b", "yarn", start, 20 * S))
    attribution = attribute(Trace(0, 20 * S, spans))
    assert [score.blame(one, attribution, "r").ok for one in just] == [True, False]


def test_the_regression_shows_a_share_that_is_lost() -> None:
    """Recovered is half of what was injected: slope 0.5, and no intercept."""
    half = [score.Recovery("r", Injection("hdfs/read", n * S, 0, n * S), {"hdfs": n * S // 2}) for n in (1, 2, 4)]
    line = score.lines(half)["hdfs"]
    assert line.slope == pytest.approx(0.5)
    assert line.intercept_ns == pytest.approx(0, abs=1)
    assert (line.delays, line.injected_ns, line.recovered_ns) == (3, 7 * S, 7 * S // 2)
    assert score.lines(half[:1])["hdfs"].slope is None


def test_a_blind_attribution_fails_the_self_test() -> None:
    """One that gives all time to one layer: the report says so, layer by layer."""
    wall_ns = len(POINTS) * S
    everything = attribute(Trace(0, wall_ns, (span("a", "tensorflow", 0, wall_ns),)))
    delays = [Injection(name, S, i * S, (i + 1) * S) for i, name in enumerate(POINTS)]
    ran = SelftestRun(
        plans.Plan("feed", 0, (), {"feed/put": [1.0]}),
        Path("run"),
        OK,
        everything,
        tuple(delays),
        tuple(score.blame(d, everything, "run") for d in delays),
        (),
    )
    whole = report.document([ran])
    assert not whole["ok"]
    assert {layer: list(row) for layer, row in whole["confusion"].items()} == {
        point.layer: ["tensorflow"] for point in POINTS.values()
    }
    console = Console(width=100, record=True, file=io.StringIO())
    report.tables([ran], console)
    right = sum(point.layer == "tensorflow" for point in POINTS.values())
    assert f"FAILED: {right} of {len(delays)} delays were found" in console.export_text()


def test_a_delay_that_was_not_made_fails_it_too() -> None:
    """Otherwise an injector that does nothing would pass."""
    assert score.missing({"feed/put": [0.1, 0.2], "hdfs/read": [1]}, [Injection("feed/put", 1, 0, 1)]) == [
        "feed/put",
        "hdfs/read",
    ]
    plan = plans.Plan("read", 0, (), {"hdfs/read": [1]})
    nothing = attribute(Trace(0, S, ()))
    assert not SelftestRun(plan, Path("run"), OK, nothing, (), (), ("hdfs/read",)).ok
    assert not report.document([SelftestRun(plan, Path("run"), OK, nothing, (), (), ())])["ok"], (
        "nothing was found at all"
    )


WAYS_AND_BLOCKS = {(plan.way, plan.block) for plan in plans.full()}
SLOW = Injection("hdfs/disk", 3 * S, 0, 40 * S)


def test_the_plans_pass_every_point_with_every_size() -> None:
    """quick: each point of dlobd's own job, in five runs; full: each with each size, and a control beside each run."""
    assert len(plans.quick()) == 5
    own = {name for name, point in POINTS.items() if point.layer == "user" or point.whole_run}
    assert {point for plan in plans.quick() for point in plan.delays} == POINTS.keys() - own
    sizes = {name: {s for plan in plans.full() for s in plan.delays.get(name, ()) if s} for name in POINTS}
    assert sizes == {name: set() if point.whole_run else set(plans.SIZES_S) for name, point in POINTS.items()}
    assert {point.layer for point in POINTS.values()} == LAYERS.keys()
    pairs = [[plan for plan in plans.full() if (plan.way, plan.block) == key] for key in WAYS_AND_BLOCKS]
    assert all(sorted(plan.control for plan in pair) == [False, True] for pair in pairs)
    assert all(len({(plan.settings, plan.own, tuple(plan.delays)) for plan in pair}) == 1 for pair in pairs)
    assert len({plan.name for plan in plans.full()}) == len(plans.full())


def test_a_slow_disk_is_a_way_of_its_own_where_there_can_be_one() -> None:
    """With its controls; it has no interval, so that what it took shows in the totals alone."""
    more = [plan for plan in plans.full(slow_disk=True) if plan not in plans.full()]
    assert [plan.control for plan in sorted(more, key=lambda plan: (plan.block, plan.control))] == [False, True] * 6
    assert paired_controls.of_run("disk", 0, [SLOW], attribute(Trace(0, S, ()))).injected == {"hdfs": 3 * S}


def test_another_part_of_the_right_layer_is_not_enough() -> None:
    """A delay at pack that comes back as wire is not recovered."""
    spans = (span("a", "channel", 0, 10 * S), span("b", "tensorflow", 10 * S, 20 * S))
    attribution = attribute(Trace(0, 20 * S, spans))
    (segment,) = [one for one in attribution.segments if one.layer == "channel"]
    assert segment.span is not None
    found = score.blame(Injection("channel/pack", S, S, 2 * S), attribution, "r")
    assert (found.blamed, found.ok) == ({score.ELSEWHERE: S}, False)
