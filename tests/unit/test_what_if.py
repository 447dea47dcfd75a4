"""A trace replayed with less of something: what that saves, and what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.attribution.what_if import WhatIf
from dlobd.schema import MAIN_LANE, Span, Trace
from tests.captured import NAMES, Captured
from tests.strategies import span, traces


def without(*names: str):
    return lambda one, waited: 0 if one.name in names else 1


def trace(*spans: Span, end_ns: int = 100) -> Trace:
    return Trace(0, end_ns, spans)


def saved(of: Trace, *names: str) -> int:
    return WhatIf(of).saved_ns(without(*names))


@given(traces())
def test_with_everything_kept_nothing_moves(of: Trace) -> None:
    assert WhatIf(of).wall_ns(lambda span, waited: 1) == of.wall_ns


@given(traces(), st.sets(st.sampled_from(["of no row", "step", "read input", "submit RPC", "user code", "trainer"])))
def test_savings_are_between_nothing_and_the_wall(of: Trace, names: set[str]) -> None:
    assert 0 <= saved(of, *names) <= of.wall_ns


@pytest.mark.parametrize("capture", NAMES)
def test_the_wall_of_a_real_run_is_replayed_to_the_nanosecond(capture: str, captured: Captured) -> None:
    of = captured.trace(capture)
    assert WhatIf(of).wall_ns(lambda span, waited: 1) == of.wall_ns


@pytest.mark.parametrize("capture", NAMES)
def test_no_span_of_a_real_run_saves_less_than_it_holds_up_alone(capture: str, captured: Captured) -> None:
    of, found = captured.trace(capture), captured.attribution(capture)
    what_if = WhatIf(of)
    for layer in found.layers:
        for name, ns in layer.names[:3]:
            assert 0 <= what_if.saved_ns(without(name)) <= of.wall_ns, (name, ns)


def test_own_time_of_the_main_lane_is_saved_whole() -> None:
    of = trace(span("a", "spark", 10, 40, MAIN_LANE), span("b", "hdfs", 20, 30, MAIN_LANE))
    assert saved(of, "a") == 20
    assert saved(of, "b") == 10
    assert saved(of, "a", "b") == 30


def test_what_another_lane_is_waited_for_beside_saves_nothing() -> None:
    """The shorter of two lanes saves nothing, the longer as much as it is longer, both together the rest."""
    of = trace(
        span("wait", "spark", 0, 90, MAIN_LANE, waits_for=("one", "other")),
        span("long", "yarn", 0, 90, "one"),
        span("short", "hdfs", 0, 60, "other"),
    )
    assert saved(of, "short") == 0
    assert saved(of, "long") == 30
    assert saved(of, "long", "short") == 90


def test_a_reaction_stays_as_long_as_it_was() -> None:
    """A poll that saw the end 10 ns late sees an earlier end 10 ns late, and is saved by itself."""
    of = trace(
        span("wait", "spark", 0, 100, MAIN_LANE, waits_for=("one",), cause="poll", cause_period_ns=20),
        span("work", "yarn", 0, 90, "one"),
    )
    assert saved(of, "work") == 90
    assert saved(of, "wait") == 10


def test_a_collective_waits_for_its_last_member() -> None:
    """The straggler is worth what it comes after the next one; the other ranks are worth nothing."""
    of = trace(
        span("wait", "spark", 0, 100, MAIN_LANE, waits_for=("rank-0",)),
        span("quick", "tensorflow", 0, 30, "rank-0"),
        span("step 0", "channel", 30, 100, "rank-0", rendezvous="step 0"),
        span("slow", "tensorflow", 0, 90, "rank-1"),
        span("step 1", "channel", 90, 100, "rank-1", rendezvous="step 0"),
    )
    assert saved(of, "quick") == 0
    assert saved(of, "slow") == 60
    assert saved(of, "slow", "quick") == 90


def test_lanes_that_begin_with_or_wait_for_each_other() -> None:
    of = trace(
        span("before", "spark", 0, 40, MAIN_LANE),
        span("beside", "spark", 40, 60, MAIN_LANE),
        span("wait", "spark", 60, 100, MAIN_LANE, waits_for=("one",)),
        span("work", "yarn", 40, 100, "one"),
    )
    assert saved(of, "before") == 40
    assert saved(of, "beside") == 0
    assert saved(of, "work") == 40
    of = trace(
        span("before", "yarn", 0, 40, MAIN_LANE),
        span("wait", "spark", 40, 100, MAIN_LANE, waits_for=("executor", "rank")),
        span("boot", "spark", 40, 70, "executor"),
        span("not yet forked", "launcher", 40, 70, "rank", waits_for=("executor",)),
        span("train", "tensorflow", 70, 100, "rank"),
    )
    assert saved(of, "before") == 40
    assert saved(of, "boot") == 30
    of = trace(
        span("wait", "spark", 0, 100, MAIN_LANE, waits_for=("one",)),
        span("there", "yarn", 0, 100, "one", waits_for=("other",)),
        span("back", "yarn", 0, 100, "other", waits_for=("one",)),
    )
    assert 0 <= saved(of, "there", "back") <= 100
