"""Builds the lanes of ranks and of parameter servers, and reports exchanges whose time is not measured.

The lane of a rank has its preparation by its executor, and its trainer from start to end. A parameter server has a lane
per worker, because it serves workers in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.axes import EXCHANGES
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.feed import given_ns
from dlobd.evidence.recorder import RecordedSpan
from dlobd.schema import NotMeasured
from dlobd.spans import Details
from dlobd.timeline.builder import OWN_MARK, LaneBuilder, Resolve, of_threads
from dlobd.timeline.ranks import Rank, is_server


def reader_of(rank: Rank) -> str:
    """Return the lane of the rank's reading threads, of tf.data or of its launcher; only one works at a time."""
    return f"{rank.lane}/reader"


def build(
    rank: Rank,
    executor: tuple[str, ...],
    executor_start_ns: int,
    in_task: bool,
    exit_ns: int | None,
    resolve: Resolve,
    puts: Sequence[RecordedSpan] = (),
) -> list[Span]:
    """Return the spans of a rank.

    Args:
        executor: lanes of its executor.
        in_task: its trainer is the Python worker of a Spark task.
    """
    process = rank.process
    lane = LaneBuilder(rank.lane, process.process, rank.start_ns)
    lane.add(kinds.NOT_YET_FORKED, executor_start_ns, rank.start_ns, OWN_MARK, waits_for=executor)
    if rank.whole:
        root = kinds.PYTHON_WORKER if in_task else kinds.TRAINER_PROCESS
        lane.add(root, rank.start_ns, rank.end_ns, OWN_MARK if process.forked else f"/proc, {OWN_MARK}")
    lane.add(kinds.TRAINER_PROCESS_EXITS, rank.end_ns, exit_ns, OWN_MARK)

    # an executor may have fed another trainer before
    given = given_ns(rank.named(kinds.GET), [put for put in puts if rank.start_ns <= put.start_ns <= rank.end_ns])
    reader = LaneBuilder(reader_of(rank), process.process, rank.start_ns)

    def own(span: RecordedSpan, wait: Details) -> Details:
        if span.name == kinds.GET and (at_ns := given.get(span.start_ns)):
            # from `at_ns` on the block is in the queue: the rest is the handover
            if at_ns <= span.start_ns:
                return {}
            if at_ns < span.end_ns:  # otherwise the put returned after the get: the queue had the block before
                taking = reader if span.thread and not rank.main else lane
                taking.add(kinds.TAKE_BLOCK, at_ns, span.end_ns, OWN_MARK)
        target = {kinds.WAIT_FEEDER: executor, kinds.WAIT_READER: (reader_of(rank),)}.get(
            next(iter(wait.get("waits_for", ())), "")
        )
        return {**wait, "waits_for": target} if target else resolve(span, wait)

    lane.add_recorded(process, [span for span in rank.spans if not span.thread], resolve=own)
    if rank.main:  # the user's own script may have any threads
        return [*lane.spans, *of_threads(rank.lane, process, rank.spans, own)]
    reader.add_recorded(process, [span for span in rank.spans if span.thread], resolve=own)
    return [*lane.spans, *reader.spans]


def servers(evidence: Evidence) -> Iterator[Span]:
    """Yield the recorded spans of dlobd's parameter servers, in lanes such as ps-0/rank-1."""
    for process in evidence.processes:
        if is_server(evidence, process):
            yield from of_threads(f"ps-{process.process.index}", process, process.spans, lambda span, wait: wait)


def exchange_not_measured(job: Mapping[str, object]) -> tuple[NotMeasured, ...]:
    """Return the reason why the exchange of a job is not measured; empty if it is measured."""
    name = str(job.get("exchange", "unknown"))
    if name not in EXCHANGES.names():
        why = f"this version has no exchange {name}: its time may be part of the steps"
        return (NotMeasured("channel", "tensorflow", why),)
    declared: NotMeasured | None = EXCHANGES.declared(name).not_measured
    return () if declared is None else (declared,)
