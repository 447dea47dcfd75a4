"""The rules of attribution, its promises for any evidence, and what-if replays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlobd.attribution.attribute import attribute, critical_path
from dlobd.attribution.trace import Attribution, Span, Trace
from dlobd.attribution.what_if import Retained, WhatIf
from dlobd.errors import BundleError
from dlobd.layers import UNATTRIBUTED
from dlobd.schema import MAIN_LANE, Clip, Interval, LayerTime
from dlobd.spans import SLEEP, SpanKind
from tests.captured import NAMES, Captured
from tests.scalar_attribution import arrange
from tests.strategies import span, trace_of, traces, untidy, well_nested


def trace(*spans: Span, end_ns: int = 100, **fields: object) -> Trace:
    """Return a trace of spans with the window [0, end_ns)."""
    return trace_of(0, end_ns, spans, **fields)  # type: ignore[arg-type]


def parts(attribution: Attribution) -> dict[str, int]:
    """Return layer to nanoseconds, with unexplained and unattributed parts."""
    found = {row.layer: row.ns for row in attribution.layers if row.ns}
    found |= {f"{row.layer}?": row.unexplained_ns for row in attribution.layers if row.unexplained_ns}
    return found | ({UNATTRIBUTED: attribution.unattributed_ns} if attribution.unattributed_ns else {})


def pieces(attribution: Attribution) -> list[tuple[int, int, str, str]]:
    return [(s.start_ns, s.end_ns, s.layer, s.kind) for s in attribution.segments]


# --- promises that hold for any evidence


def check_promises(attribution: Attribution, start_ns: int, wall_ns: int) -> None:
    """Check the exact sum; no overlap, no hole, nothing negative."""
    assert sum(row.ns for row in attribution.layers) + attribution.unattributed_ns == wall_ns == attribution.wall_ns
    at_ns = start_ns
    for segment in attribution.segments:
        assert segment.start_ns == at_ns < segment.end_ns
        assert segment.span is None or segment.span.lane == segment.chain[-1]
        assert len(set(segment.chain)) == len(segment.chain)
        at_ns = segment.end_ns
    assert at_ns == start_ns + wall_ns
    assert attribution.unattributed_ns >= 0
    for row in attribution.layers:
        assert 0 <= row.lo_ns <= row.ns <= row.hi_ns <= wall_ns
        known = (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns)
        assert all(ns is not None and ns >= 0 for ns in known)
        assert sum(ns for ns in known if ns is not None) == row.ns
        assert row.named_wait_ns == sum(ns for _, ns, _ in row.causes)
        assert sum(ns for _, ns in row.names) == row.ns
    assert all(clip.ns >= 0 for clip in attribution.clips)


@settings(max_examples=150, deadline=None)
@given(traces())
def test_any_evidence_sums_exactly_and_never_gets_negative(evidence: Trace) -> None:
    check_promises(attribute(evidence), 0, evidence.wall_ns)


@settings(max_examples=80, deadline=None)
@given(well_nested())
def test_the_sweep_equals_nested_subtraction(spans: list[Span]) -> None:
    expected: Counter[str] = Counter({UNATTRIBUTED: 1000})
    layer_of = {each.id: each.layer for each in spans}
    for each in spans:
        length = each.end_ns - each.start_ns
        expected[each.layer] += length
        expected[layer_of[each.parent] if each.parent else UNATTRIBUTED] -= length
    attribution = attribute(trace(*spans, end_ns=1000))
    assert parts(attribution) == {name: ns for name, ns in expected.items() if ns}
    assert attribution.clips == ()


@settings(max_examples=100, deadline=None)
@given(untidy())
def test_a_normalised_lane_nests(spans: list[Span]) -> None:
    lane = arrange(spans, 0, 1000)
    around: list[tuple[int, int]] = [(0, 1000)]
    for nested in lane.nested:
        while around[-1][1] <= nested.start_ns:
            around.pop()
        assert len(around) == nested.depth + 1
        assert around[-1][0] <= nested.start_ns < nested.end_ns <= around[-1][1]
        around.append((nested.start_ns, nested.end_ns))
    assert [piece.start_ns for piece in lane.pieces] == [0, *(piece.end_ns for piece in lane.pieces)][:-1]
    assert all(a.span is not b.span for a, b in pairwise(lane.pieces) if a.span is None)


@settings(max_examples=80, deadline=None)
@given(well_nested("rank 0"), st.integers(0, 300))
def test_delegation_cannot_hide_a_hole(inner: list[Span], period_ns: int) -> None:
    wait = span("wait", "spark", 100, 900, waits_for=("rank 0",), cause="poll", cause_period_ns=period_ns)
    rows = {row.layer: row for row in attribute(trace(wait, end_ns=1000)).layers}
    assert rows["spark"].unexplained_ns == 800 - period_ns
    assert rows["spark"].causes == ((("poll", period_ns, None),) if period_ns else ())
    covered = sum(p.end_ns - p.start_ns for p in arrange(inner, 100, 900).pieces if p.span)
    unexplained_ns = sum(row.unexplained_ns for row in attribute(trace(wait, *inner, end_ns=1000)).layers)
    assert unexplained_ns == max(0, 800 - covered - period_ns)


# --- the rules, one by one


def test_waits_end_with_the_lane_that_releases_them() -> None:
    wait = span("join", "spark", 0, 100, waits_for=("rank 0",))
    work = [span("w", "tensorflow", 10, 60, "rank 0"), span("r", "hdfs", 70, 100, "rank 0")]
    assert parts(attribute(trace(wait, *work))) == {"spark": 20, "spark?": 20, "tensorflow": 50, "hdfs": 30}
    wait = span("join", "spark", 0, 100, waits_for=("rank 0", "gone", "rank 1"))
    ranks = [span("a", "tensorflow", 0, 95, "rank 0"), span("b", "hdfs", 0, 99, "rank 1")]
    assert parts(attribute(trace(wait, *ranks))) == {"spark": 1, "spark?": 1, "hdfs": 99}
    wait = span("wave 1", "spark", 0, 50, waits_for=("slot 0", "slot 1"))
    slots = [
        span("a", "hdfs", 0, 10, "slot 0"),
        span("b", "tensorflow", 0, 50, "slot 1"),
        span("c", "hdfs", 60, 100, "slot 0"),
    ]
    assert parts(attribute(trace(wait, *slots, end_ns=50))) == {"tensorflow": 50}
    wait = span("get", "feed", 0, 100, waits_for=("feeder",), released_ns=40)
    attribution = attribute(trace(wait, span("put", "hdfs", 0, 100, "feeder")))
    assert parts(attribution) == {"feed": 60, "feed?": 60, "hdfs": 40}


def test_waits_are_replaced_in_turn() -> None:
    attribution = attribute(
        trace(
            span("submit", "client", 0, 100, waits_for=("driver",)),
            span("job", "spark", 0, 100, "driver", waits_for=("rank 0",)),
            span("step", "tensorflow", 0, 100, "rank 0"),
        )
    )
    assert parts(attribution) == {"tensorflow": 100}
    assert attribution.segments[0].chain == (MAIN_LANE, "driver", "rank 0")


def test_a_layer_beside_the_critical_path_has_a_row_of_0() -> None:
    main = span("train", "tensorflow", 0, 100)
    beside = span("take blocks", "feed", 10, 90, "rank 0/reader")
    later = span("stop", "yarn", 100, 120, "node")
    rows = attribute(trace(main, beside, later, end_ns=100)).layers
    assert [(row.layer, row.ns, row.lo_ns, row.hi_ns) for row in rows] == [
        ("feed", 0, 0, 0),
        ("tensorflow", 100, 100, 100),
    ]


def test_causes_explain_the_end_of_a_wait_or_sleep() -> None:
    wait = span("join", "launcher", 0, 100, waits_for=("rank 0",), cause="poll", cause_period_ns=25)
    attribution = attribute(trace(wait, span("a", "tensorflow", 0, 40, "rank 0")))
    assert pieces(attribution) == [
        (0, 40, "tensorflow", "span"),
        (40, 75, "launcher", "unexplained"),
        (75, 100, "launcher", "cause"),
    ]
    assert attribution.layers[0].causes == (("poll", 25, None),)
    attribution = attribute(trace(span("s", "launcher", 0, 100, cause="sleep", cause_period_ns=60)))
    assert pieces(attribution) == [(0, 40, "launcher", "span"), (40, 100, "launcher", "cause")]
    assert sum(row.unexplained_ns for row in attribution.layers) == 0


def test_a_cycle_ends_as_unexplained_and_is_counted() -> None:
    attribution = attribute(
        trace(
            span("a", "spark", 0, 100, waits_for=("rank 0",)),
            span("b", "feed", 20, 80, "rank 0", waits_for=(MAIN_LANE,)),
        )
    )
    assert parts(attribution) == {"spark": 40, "spark?": 40, "feed": 60, "feed?": 60}
    assert attribution.clips == (Clip("cycle", "b", 60),)


def test_a_delay_of_rank_1_is_not_blamed_on_the_wait_of_rank_0() -> None:
    """Rank 0 enters the collective at 20, rank 1 reads data until 70: those 50 ns are HDFS, not TensorFlow."""
    attribution = attribute(
        trace(
            span("join", "spark", 0, 100, waits_for=("rank 0",)),
            span("c0", "tensorflow", 0, 20, "rank 0"),
            span("s0", "tensorflow", 20, 100, "rank 0", rendezvous="step 1"),
            span("c1", "tensorflow", 0, 20, "rank 1"),
            span("h1", "hdfs", 20, 70, "rank 1"),
            span("s1", "tensorflow", 70, 100, "rank 1", rendezvous="step 1"),
        )
    )
    assert parts(attribution) == {"hdfs": 50, "tensorflow": 50}


def test_collectives_end_with_their_last_member() -> None:
    attribution = attribute(
        trace(
            span("s0", "channel", 0, 100, rendezvous="step 1"),
            span("h1", "hdfs", 20, 70, "rank 1"),
            span("s1", "channel", 80, 100, "rank 1", rendezvous="step 1"),
        )
    )
    assert parts(attribution) == {"hdfs": 50, "channel": 50, "channel?": 30}
    attribution = attribute(
        trace(
            span("s0", "tensorflow", 0, 100, rendezvous="k"),
            span("pack", "channel", 0, 10, parent="s0"),
            span("h1", "hdfs", 0, 50, "rank 1"),
            span("s1", "tensorflow", 50, 100, "rank 1", rendezvous="k"),
        )
    )
    assert parts(attribution) == {"channel": 10, "hdfs": 40, "tensorflow": 50}
    attribution = attribute(
        trace(
            span("s0", "tensorflow", 0, 50, rendezvous="k"), span("s1", "tensorflow", 80, 100, "rank 1", rendezvous="k")
        )
    )
    assert parts(attribution) == {"tensorflow": 50, UNATTRIBUTED: 50}
    assert attribution.clips == (Clip("inconsistent", "s0", 30),)


def test_spans_are_clipped_to_window_parent_and_neighbour() -> None:
    attribution = attribute(trace(span("a", "spark", -30, 50)))
    assert parts(attribution) == {"spark": 50, UNATTRIBUTED: 50}
    assert attribution.clips == (Clip("outside window", "a", 30),)
    for resolution, kind in ((5, "crossing"), (4, "inconsistent")):
        child = span("b", "hdfs", 30, 60, parent="a", resolution_ns=resolution)
        attribution = attribute(trace(span("a", "spark", 0, 50, resolution_ns=5), child))
        assert parts(attribution) == {"spark": 30, "hdfs": 20, UNATTRIBUTED: 50}
        assert attribution.clips == (Clip(kind, "b", 10),)
    spans = span("a", "spark", 0, 60, resolution_ns=9), span("b", "hdfs", 20, 62)
    attribution = attribute(trace(*spans))
    assert parts(attribution) == {"spark": 20, "hdfs": 40, UNATTRIBUTED: 40}
    assert attribution.clips == (Clip("crossing", "b", 2),)
    attribution = attribute(trace(span("a", "spark", 0, 60), span("b", "hdfs", 40, 100)))
    assert parts(attribution) == {"spark": 40, "hdfs": 60}
    assert attribution.clips == (Clip("inconsistent", "a", 20),)
    assert attribute(trace(span("a", "spark", 0, 100, truncated=True))).clips == (Clip("truncated", "a", 100),)


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(1, 10, {"spark": 52, "hdfs": 48}), (10, 1, {"spark": 50, "hdfs": 50})]
)
def test_where_neighbours_cross_the_coarser_edge_moves(first: int, second: int, expected: dict[str, int]) -> None:
    spans = span("a", "spark", 0, 52, resolution_ns=first), span("b", "hdfs", 50, 100, resolution_ns=second)
    attribution = attribute(trace(*spans))
    assert parts(attribution) == expected
    assert [(clip.kind, clip.ns) for clip in attribution.clips] == [("crossing", 2)]


def test_boundaries_are_as_uncertain_as_their_coarser_side() -> None:
    attribution = attribute(trace(span("a", "spark", 0, 40, resolution_ns=3), span("b", "hdfs", 40, 100)))
    assert [(row.lo_ns, row.hi_ns) for row in attribution.layers] == [(37, 43), (57, 63)]
    for wait_ns, work_ns in ((7, 2), (2, 7)):
        attribution = attribute(
            trace(
                span("a", "client", 0, 40),
                span("join", "spark", 40, 100, waits_for=("rank 0",), resolution_ns=wait_ns),
                span("w", "tensorflow", 40, 100, "rank 0", resolution_ns=work_ns),
            )
        )
        assert [(row.lo_ns, row.hi_ns) for row in attribution.layers if row.ns] == [(33, 47), (53, 67)]
    attribution = attribute(trace(span("a", "spark", 0, 40, resolution_ns=9), span("b", "spark", 40, 100)))
    assert [(row.lo_ns, row.hi_ns) for row in attribution.layers] == [(100, 100)]


def test_an_interval_widens_the_layer_it_hides_in() -> None:
    hidden = Interval("hdfs", "spark", MAIN_LANE, 20, 80, 5, 30, "bytes / peak rate", "duration of the block's trace")
    attribution = attribute(trace(span("task", "spark", 10, 60), intervals=(hidden,)))
    rows = {row.layer: row for row in attribution.layers}
    assert (rows["hdfs"].ns, rows["hdfs"].lo_ns, rows["hdfs"].hi_ns) == (0, 0, 30)
    assert (rows["spark"].ns, rows["spark"].lo_ns, rows["spark"].hi_ns) == (50, 18, 52)
    assert parts(attribution) == {"spark": 50, UNATTRIBUTED: 50}
    hidden = Interval("hdfs", "spark", MAIN_LANE, 50, 60, 5, 30, "a", "b")
    rows = {row.layer: row for row in attribute(trace(span("t", "spark", 0, 100), intervals=(hidden,))).layers}
    assert (rows["hdfs"].hi_ns, rows["spark"].lo_ns) == (10, 90)


def test_the_critical_path_joins_like_neighbours() -> None:
    steps = [span(f"s{k}", "tensorflow", 20 * k, 20 * k + 20, name="step") for k in range(3)]
    path = critical_path(attribute(trace(*steps, span("save", "hdfs", 60, 100))))
    assert [(s.start_ns, s.end_ns, s.layer) for s in path] == [(0, 60, "tensorflow"), (60, 100, "hdfs")]


def test_unknown_layers_and_reversed_windows_are_errors() -> None:
    with pytest.raises(BundleError, match="unknown layer 'gpu'"):
        attribute(trace(replace(span("a", "spark", 0, 10), kind=SpanKind("a", "gpu"))))
    with pytest.raises(BundleError, match="ends before it starts"):
        attribute(trace_of(10, 0, ()))


def known(*spans: Span) -> LayerTime:
    (row,) = attribute(trace_of(0, 100, spans)).layers
    return row


def test_calls_are_measured_unless_their_end_is_missing() -> None:
    whole = span("w", "tensorflow", 0, 100, name="trainer process")
    call = span("c", "tensorflow", 20, 50, parent="w", name="step")
    row = known(whole, call)
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (30, 70, 0, 0)
    row = known(span("c", "feed", 0, 100, truncated=True, name="put"))
    assert (row.measured_ns, row.between_marks_ns) == (0, 100)


@pytest.mark.parametrize(
    ("cause", "length"), [("done-marker poll (0.1 s)", "read"), ("Spark's barrier poll", "default"), ("poll", None)]
)
def test_a_named_wait_has_the_origin_of_its_length(cause: str, length: str | None) -> None:
    wait = span("w", "launcher", 0, 100, waits_for=("nobody",), cause=cause, cause_period_ns=30)
    row = known(wait)
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (0, 0, 30, 70)
    assert row.causes == ((cause, 30, length),)
    row = known(replace(wait, kind=SLEEP, waits_for=()))
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (70, 0, 30, 0)


def without(of: Trace, *names: str) -> Retained:
    kept = np.array([one.name not in names for one in of.spans], np.int64)
    return Retained(kept, kept, np.ones_like(kept))


def saved(of: Trace, *names: str) -> int:
    return WhatIf(of).saved_ns(without(of, *names))


@given(traces())
def test_with_everything_kept_nothing_moves(of: Trace) -> None:
    assert saved(of) == 0


@given(traces(), st.sets(st.sampled_from(["of no row", "step", "read input", "submit RPC", "user code", "trainer"])))
def test_savings_are_between_nothing_and_the_wall(of: Trace, names: set[str]) -> None:
    assert 0 <= saved(of, *names) <= of.wall_ns


@pytest.mark.parametrize("capture", NAMES)
def test_the_wall_of_a_real_run_is_replayed_to_the_nanosecond(capture: str, captured: Captured) -> None:
    of = captured.trace(capture)
    assert saved(of) == 0


@pytest.mark.parametrize("capture", NAMES)
def test_no_span_of_a_real_run_saves_less_than_it_holds_up_alone(capture: str, captured: Captured) -> None:
    of, found = captured.trace(capture), captured.attribution(capture)
    what_if = WhatIf(of)
    for layer in found.layers:
        for name, ns in layer.names[:3]:
            assert 0 <= what_if.saved_ns(without(of, name)) <= of.wall_ns, (name, ns)


def test_own_time_of_the_main_lane_is_saved_whole() -> None:
    of = trace(span("a", "spark", 10, 40, MAIN_LANE), span("b", "hdfs", 20, 30, MAIN_LANE))
    assert saved(of, "a") == 20
    assert saved(of, "b") == 10
    assert saved(of, "a", "b") == 30


def test_an_awaited_lane_that_fills_the_window_is_saved_whole() -> None:
    of = trace(span("wait", "spark", 0, 100, MAIN_LANE, waits_for=("one",)), span("work", "hdfs", 0, 100, "one"))
    assert saved(of, "work") == 100


def test_the_shorter_of_two_awaited_lanes_saves_nothing() -> None:
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
    """The straggler saves its lead over the next rank; the other ranks save nothing."""
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
