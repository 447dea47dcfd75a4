"""Puts and gets of one feed are matched by the bytes that they moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.evidence.feed import given_ns, room_ns
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.recompute.computed import _rank
from dlobd.schema import MAIN_LANE, Process, Span, Trace
from dlobd.timeline import rank as rank_lane
from dlobd.timeline.ranks import Rank


def moved(start_ns: int, end_ns: int, size: int | None, truncated: bool = False) -> RecordedSpan:
    attrs: dict[str, Any] = {} if size is None else {"bytes": size}
    return RecordedSpan(0, 0, "feed", "put", start_ns, end_ns, truncated, {}, attrs, "")


PUTS = [moved(0, 10, 100), moved(20, 30, 100), moved(40, 50, 50)]
GETS = [moved(5, 12, 100), moved(25, 33, 100), moved(60, 61, 50)]


def test_gets_and_puts_are_matched_by_their_bytes() -> None:
    assert given_ns(GETS, PUTS) == {5: 10, 25: 30, 60: 50}
    assert given_ns([moved(0, 99, 250)], PUTS) == {0: 50}
    assert given_ns([moved(0, 1, 100), moved(2, 3, 200)], PUTS[:1]) == {0: 10}
    assert given_ns([moved(0, 1, None), moved(2, 3, 100)], PUTS) == {}
    assert given_ns([moved(0, 1, 100), moved(2, 9, 100, truncated=True)], PUTS) == {0: 10}
    assert given_ns([moved(0, 1, 0)], PUTS) == {}
    assert room_ns(PUTS, GETS, 150) == {0: 0, 20: 12, 40: 12}
    assert room_ns(PUTS, GETS, 1000) == {0: 0, 20: 0, 40: 0}
    assert room_ns(PUTS, [], 150) == {0: 0}


def test_a_rank_that_stops_inside_a_get_whose_rows_are_there() -> None:
    """Its executor, which has put them and waits until they are taken, is not asked: the queue has the time. Puts of
    the cluster that was there before are not this rank's."""
    trainer = Process("host", "worker", 0, 1)
    recorded = RecordedProcess(trainer, "domain", 20, True, Path("spans"), last_ns=100)
    feeder = {"waits_for": ["@feeder"]}
    recorded.spans = [
        RecordedSpan(1, 0, "feed", "get", 30, 50, False, feeder, {"items": 32}, ""),
        RecordedSpan(2, 0, "feed", "get", 60, 90, False, feeder, {"items": 32}, ""),
    ]
    puts = [
        RecordedSpan(0, 0, "feed", "put", start, end, False, {}, {"items": n}, "")
        for start, end, n in ((0, 5, 64), (22, 25, 32), (55, 65, 64))
    ]
    rank = Rank(recorded, "1", "worker", 0, 20, 100, whole=True)
    spans = rank_lane.build(rank, "executor-1", 0, False, None, lambda span, wait: wait, puts)
    executor = Span("e", None, kinds.READ_ROWS, trainer, "executor-1", 0, 100)
    main = Span("m", None, kinds.SpanKind("wait", "client"), trainer, MAIN_LANE, 30, 90, waits_for=("rank-1",))
    found = attribute(Trace(30, 90, (main, executor, *spans)))
    segments = [(s.start_ns, s.end_ns, s.chain[-1], s.span.name if s.span else "") for s in found.segments]
    assert segments == [
        (30, 50, "rank-1", "get"),
        (50, 60, "rank-1", "trainer process"),
        (60, 65, "executor-1", "read rows"),
        (65, 90, "rank-1", "take block"),
    ]


def test_a_wait_for_what_is_read_ahead_goes_through_the_thread_to_the_feeder() -> None:
    trainer = Process("host", "chief", 0, 1)

    def span(i: int, name: str, start_ns: int, end_ns: int, *waits_for: str, thread: str = "", **attrs: Any) -> Any:
        layer = "tensorflow" if name == "step" else "feed"
        wait = {"waits_for": list(waits_for)} if waits_for else {}
        parent = 1 if name == "get" else 0
        return RecordedSpan(i, parent, layer, name, start_ns, end_ns, False, wait, attrs, thread)

    recorded = RecordedProcess(trainer, "domain", 0, True, Path("spans"), last_ns=100)
    recorded.spans = [
        span(1, "read ahead", 0, 100, thread="dlobd-reader"),
        span(2, "get", 5, 15, "@feeder", thread="dlobd-reader", bytes=7),
        span(3, "get", 20, 50, "@feeder", thread="dlobd-reader", bytes=7),
        span(4, "await block", 30, 55, "@reader"),
        span(5, "step", 55, 100),
    ]
    puts = [moved(0, 10, 7), moved(35, 45, 7)]
    rank = Rank(recorded, "1", "chief", 0, 0, 100, whole=True)
    spans = rank_lane.build(rank, "executor-1", 0, False, None, lambda span, wait: wait, puts)
    executor = Span("e", None, kinds.READ_BLOCK, trainer, "executor-1", 0, 100)
    main = Span("m", None, kinds.SpanKind("wait", "client"), trainer, MAIN_LANE, 30, 100, waits_for=("rank-0",))
    found = attribute(Trace(30, 100, (main, executor, *spans)))
    segments = [(s.start_ns, s.end_ns, s.chain[-1], s.span.name if s.span else "") for s in found.segments]
    assert segments == [
        (30, 45, "executor-1", "read block"),
        (45, 50, "rank-0/reader", "take block"),
        (50, 55, "rank-0/reader", "read ahead"),
        (55, 100, "rank-0", "step"),
    ]
    assert {clip.kind for clip in found.clips} == {"outside window"}
    (wait,) = recorded.named(kinds.AWAIT_BLOCK)
    assert _rank(recorded, {}).feed_wait_ns == wait.end_ns - wait.start_ns
