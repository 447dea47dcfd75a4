"""Puts and gets of a feed, and jobs, tasks and Python workers of a user's script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Span, Spans
from dlobd.columns import NONE
from dlobd.evidence import log4j, spark
from dlobd.evidence.feed import passed_ns
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.recompute.computed import _rank
from dlobd.schema import MAIN_LANE, Process
from dlobd.timeline import executor
from dlobd.timeline import ranks as rank_lane
from dlobd.timeline.builder import without_roles
from dlobd.timeline.ranks import Rank
from dlobd.timeline.tasks import critical, lost
from tests.strategies import trace_of


def moved(start_ns: int, end_ns: int, size: int | None, truncated: bool = False) -> RecordedSpan:
    attrs: dict[str, Any] = {} if size is None else {"bytes": size}
    return RecordedSpan(0, 0, "feed", "put", start_ns, end_ns, truncated, {}, attrs, "")


PUTS = [moved(0, 10, 100), moved(20, 30, 100), moved(40, 50, 50)]
GETS = [moved(5, 12, 100), moved(25, 33, 100), moved(60, 61, 50)]


def given(gets: list[RecordedSpan], puts: list[RecordedSpan]) -> dict[int, int]:
    found, _ = passed_ns([RecordedSpans.of(gets)], [RecordedSpans.of(puts)])
    return {get.start_ns: at_ns for get, at_ns in zip(gets, found.tolist(), strict=True) if at_ns != NONE}


def room(gets: list[RecordedSpan], capacity_bytes: int) -> dict[int, int]:
    found, _ = passed_ns(
        [RecordedSpans.of(PUTS[:1]), RecordedSpans.of(PUTS[1:])], [RecordedSpans.of(gets)], capacity_bytes
    )
    return {put.start_ns: at_ns for put, at_ns in zip(PUTS, found.tolist(), strict=True) if at_ns != NONE}


def test_gets_and_puts_are_matched_by_their_bytes() -> None:
    assert given(GETS, PUTS) == {5: 10, 25: 30, 60: 50}
    assert given(GETS[::-1], PUTS[::-1]) == {5: 10, 25: 30, 60: 50}
    assert given([moved(0, 99, 250)], PUTS) == {0: 50}
    assert given([moved(0, 1, 100), moved(2, 3, 200)], PUTS[:1]) == {0: 10}
    assert given([moved(0, 1, None), moved(2, 3, 100)], PUTS) == {}
    assert given([moved(0, 1, 100), moved(2, 9, 100, truncated=True)], PUTS) == {0: 10}
    assert given([moved(0, 1, 0)], PUTS) == {}
    assert room(GETS, 150) == {0: 0, 20: 12, 40: 12}
    assert room(GETS, 1000) == {0: 0, 20: 0, 40: 0}
    assert room([], 150) == {0: 0}


def test_a_rank_that_stops_in_a_get_with_rows_in_its_queue() -> None:
    """The rows are in the queue, so the queue has the time; earlier puts belong to another rank."""
    trainer = Process("host", "worker", 0, 1)
    recorded = RecordedProcess(trainer, "domain", 20, True, Path("spans"), last_ns=100)
    feeder = {"waits_for": ["@feeder"]}
    recorded.spans = RecordedSpans.of(
        [
            RecordedSpan(1, 0, "feed", "get", 30, 50, False, feeder, {"items": 32}, ""),
            RecordedSpan(2, 0, "feed", "get", 60, 90, False, feeder, {"items": 32}, ""),
        ]
    )
    puts = [
        RecordedSpan(0, 0, "feed", "put", start, end, False, {}, {"items": n}, "")
        for start, end, n in ((0, 5, 64), (22, 25, 32), (55, 65, 64))
    ]
    rank = Rank(recorded, "1", "worker", 0, 20, 100, whole=True)
    parts = rank_lane.build(rank, ("executor-1",), 0, False, None, without_roles, [RecordedSpans.of(puts)])
    spans = list(Spans.joined(parts))
    executor = Span("e", None, kinds.READ_ROWS, trainer, "executor-1", 0, 100)
    main = Span("m", None, kinds.SpanKind("wait", "client"), trainer, MAIN_LANE, 30, 90, waits_for=("rank-1",))
    found = attribute(trace_of(30, 90, (main, executor, *spans)))
    segments = [(s.start_ns, s.end_ns, s.chain[-1], s.span.name if s.span else "") for s in found.segments]
    assert segments == [
        (30, 50, "rank-1", "get"),
        (50, 60, "rank-1", "trainer process"),
        (60, 65, "executor-1", "read rows"),
        (65, 90, "rank-1", "take block"),
    ]


def test_a_wait_for_a_block_read_ahead_leads_through_the_thread_to_the_feeder() -> None:
    trainer = Process("host", "chief", 0, 1)

    def span(i: int, name: str, start_ns: int, end_ns: int, *waits_for: str, thread: str = "", **attrs: Any) -> Any:
        layer = "tensorflow" if name == "step" else "feed"
        wait = {"waits_for": list(waits_for)} if waits_for else {}
        parent = 1 if name == "get" else 0
        return RecordedSpan(i, parent, layer, name, start_ns, end_ns, False, wait, attrs, thread)

    recorded = RecordedProcess(trainer, "domain", 0, True, Path("spans"), last_ns=100)
    recorded.spans = RecordedSpans.of(
        [
            span(1, "read ahead", 0, 100, thread="dlobd-reader"),
            span(2, "get", 5, 15, "@feeder", thread="dlobd-reader", bytes=7),
            span(3, "get", 20, 50, "@feeder", thread="dlobd-reader", bytes=7),
            span(4, "await block", 30, 55, "@reader"),
            span(5, "step", 55, 100),
        ]
    )
    puts = [moved(0, 10, 7), moved(35, 45, 7)]
    rank = Rank(recorded, "1", "chief", 0, 0, 100, whole=True)
    parts = rank_lane.build(rank, ("executor-1",), 0, False, None, without_roles, [RecordedSpans.of(puts)])
    spans = list(Spans.joined(parts))
    executor = Span("e", None, kinds.READ_BLOCK, trainer, "executor-1", 0, 100)
    main = Span("m", None, kinds.SpanKind("wait", "client"), trainer, MAIN_LANE, 30, 100, waits_for=("rank-0",))
    found = attribute(trace_of(30, 100, (main, executor, *spans)))
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


STARTING = (
    "Starting task 0.0 in stage {stage}.0 (TID {tid}) (localhost,executor {executor}, partition 0, ANY, 9 bytes) "
)


def span(number: int, start_ns: int, end_ns: int, name: str = "user code", **more: Any) -> RecordedSpan:
    fields = {"parent": 0, "layer": "user", "truncated": False, "wait": {}, "attrs": {}, "thread": "", **more}
    return RecordedSpan(id=number, name=name, start_ns=start_ns, end_ns=end_ns, **fields)


def worker(*spans: RecordedSpan, role: str = "python-worker") -> RecordedProcess:
    return RecordedProcess(Process("h", role, 0, 7), "d", 0, True, Path("x"), 1000, RecordedSpans.of(spans))


def test_jobs_and_stages_of_sql() -> None:
    messages = (
        "Got map stage job 0 (collect at s.py:1) with 2 output partitions",
        "Submitting ShuffleMapStage 0 (MapPartitionsRDD[1]), which has no missing parents",
        STARTING.format(stage=0, tid=0, executor=1),
        "Got job 1 (count at s.py:2) with 1 output partitions",
        "Submitting ShuffleMapStage 1 (MapPartitionsRDD[2]), which has no missing parents",
        "Submitting ResultStage 2 (MapPartitionsRDD[3]), which has no missing parents",
        STARTING.format(stage=2, tid=1, executor=2),
        "Job 1 finished: count at s.py:2, took 1 s",
    )
    text = [f"{1_000_000 + k} 2026-11-21T03:02:40.666 INFO a.B: {message}\n" for k, message in enumerate(messages)]
    log = spark.driver(list(log4j.parse(text, "log")))
    assert [(job.name, [task.id for task in job.tasks]) for job in log.jobs] == [("collect", [0]), ("count", [1])]


def chain(jobs: list[spark.Job], *evidence: Any) -> list[tuple[str, str, int, int]]:
    """The critical path of jobs, with the executor of each task."""
    links = critical(jobs, evidence[0], 1000, *evidence[1:])
    return [(link.job, link.task.executor if link.task else "", link.start_ns, link.end_ns) for link in links]


def test_the_tasks_on_which_a_job_hung() -> None:
    tasks = [(0, "1", 0, 40), (1, "2", 0, 50), (2, "1", 55, 70), (3, "2", 52, 90), (4, "1", 72, 99)]
    job = spark.Job(0, "j", 0, 95, tasks=[spark.Task(n, 0, e, start, end, n) for n, e, start, end in tasks])
    finished = {e: {n: end for n, x, _, end in tasks if x == e} for e in ("1", "2")}
    found = chain([job], finished)
    # the executor cleans up until 99, but its job was over at 95
    assert found == [("j", "1", 72, 95), ("j", "1", 55, 70), ("j", "2", 0, 50)]


def test_a_lost_attempt_is_not_on_the_critical_path_of_a_job() -> None:
    """A lost attempt takes time until its task is repeated, also if its executor died."""
    winner, overtaken = spark.Task(1, 0, "2", 60, 70, 0), spark.Task(0, 0, "1", 10, None, 0)
    job = spark.Job(0, "j", 0, 95, tasks=[overtaken, winner])
    finished = {"1": {0: 90}, "2": {1: 69}}
    assert chain([job], finished) == [("j", "2", 60, 69), ("j", "", 10, 60)]
    assert list(lost([job])) == [(job, overtaken, winner)]
    again = [spark.Task(n, 0, "1", 10 * n, None, 3) for n in (1, 2)] + [spark.Task(3, 0, "2", 40, 50, 3)]
    job = spark.Job(0, "j", 0, 95, tasks=[spark.Task(0, 0, "2", 0, 35, 2), *again])
    found = chain([job], {"2": {0: 35, 3: 48}})
    assert found == [("j", "2", 40, 48), ("j", "", 10, 40)]
    # its executor died, and the one that made it again was started then
    winner = spark.Task(1, 0, "3", 60, 70, 0)
    job = spark.Job(0, "j", 0, 95, tasks=[overtaken, winner])
    found = chain([job], {"3": {1: 69}}, {"1": 25}, {"1": 5, "3": 55})
    assert found == [("j", "3", 60, 69), ("j", "3", 25, 55), ("j", "", 10, 25)]
    # a speculative attempt that lost began later, and held up nothing
    late = spark.Task(2, 0, "1", 60, None, 0)
    job = spark.Job(0, "j", 0, 95, tasks=[spark.Task(1, 0, "2", 10, 70, 0), late])
    assert chain([job], {"1": {2: 80}, "2": {1: 69}}) == [("j", "2", 10, 69)]
    assert [one.again for one in lost([job])] == [False]


def test_ranks_and_tasks_are_parts_of_python_workers() -> None:
    taken: list[tuple[int, int]] = []
    first = RecordedSpans.of([span(1, 0, 100), span(2, 10, 20, parent=1), span(3, 300, 400)])
    assert not len(executor._beside(first, taken))
    second = RecordedSpans.of([span(4, 50, 150), span(5, 60, 70, parent=4), span(6, 200, 250)])
    beside = executor._beside(second, taken)
    assert beside.tolist() == [[50, 150]]
    assert executor._begun_in(second.start_ns, beside).tolist() == [True, True, False]
    assert taken == [(0, 100), (300, 400), (200, 250)]
    main = span(2, 10, 20, layer="tensorflow", attrs={"role": "chief", "index": 0, "in_task": True})
    process = worker(span(1, 0, 5), main, span(3, 12, 13, "get", parent=2), span(4, 30, 40))
    rank = Rank(process, "1", "chief", 0, 10, 20, False, main)
    assert (rank.lane, [s.id for s in rank.spans], rank.finished) == ("rank-0", [2, 3], (False, 20))
    assert rank.has.tolist() == [False, True, True, False]
    assert Rank(process, "1", "worker", 1, 0, 9, True).lane == "rank-2"
    assert Rank(process, "1", "ps", 0, 0, 9, True).lane == "ps-0"
