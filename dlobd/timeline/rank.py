"""Builds the lanes of ranks and of parameter servers, and reports exchanges whose time is not measured.

The lane of a rank has its preparation by its executor, and its trainer from start to end. A parameter server has a lane
per worker, because it serves workers in parallel.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dlobd import spans as kinds
from dlobd.axes import EXCHANGES
from dlobd.columns import NONE, Flags
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.feed import passed_ns
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.schema import NotMeasured
from dlobd.timeline.builder import OWN_MARK, Handover, LaneBuilder, Part, Resolve, of_threads
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
    puts: Sequence[RecordedSpans] = (),
) -> list[Part]:
    """Return the spans of a rank.

    Args:
        executor: lanes of its executor.
        in_task: its trainer is the Python worker of a Spark task.
        puts: puts of its feed, by process.
    """
    process, spans = rank.process, rank.spans
    lane = LaneBuilder(rank.lane, process.process, rank.start_ns)
    lane.add(kinds.NOT_YET_FORKED, executor_start_ns, rank.start_ns, OWN_MARK, waits_for=executor)
    if rank.whole:
        root = kinds.PYTHON_WORKER if in_task else kinds.TRAINER_PROCESS
        lane.add(root, rank.start_ns, rank.end_ns, OWN_MARK if process.forked else f"/proc, {OWN_MARK}")
    lane.add(kinds.TRAINER_PROCESS_EXITS, rank.end_ns, exit_ns, OWN_MARK)

    # an executor may have fed another trainer before
    here = [put.where((rank.start_ns <= put.start_ns) & (put.start_ns <= rank.end_ns)) for put in puts]
    # from then on the block is in the queue
    given_since_ns, error_ns = np.full(len(spans), NONE), np.zeros(len(spans), np.int64)
    gets = spans.is_named(kinds.GET)
    given_since_ns[gets], error_ns[gets] = passed_ns([spans.where(gets)], here)
    lanes = {kinds.WAIT_FEEDER: executor, kinds.WAIT_READER: (reader_of(rank),)}

    def add(to: LaneBuilder, some: Flags) -> list[Part]:
        handover = Handover(kinds.TAKE_BLOCK, given_since_ns[some], error_ns[some])
        to.add_recorded(process, spans.where(some), resolve, lanes, handover)
        return to.parts

    found, main = add(lane, spans.in_main_thread), spans.in_main_thread
    if not rank.main:
        return [*found, *add(LaneBuilder(reader_of(rank), process.process, rank.start_ns), ~main)]
    for thread, some in spans.other_threads():  # the user's own script may have any threads
        found += add(LaneBuilder(f"{rank.lane}/{thread}", process.process, rank.start_ns), some)
    return found


def servers(evidence: Evidence) -> Iterator[Part]:
    """Yield the recorded spans of dlobd's parameter servers, in lanes such as ps-0/rank-1."""
    for process in evidence.processes:
        if is_server(evidence, process):
            yield from of_threads(f"ps-{process.process.index}", process, process.spans)


def exchange_not_measured(job: Mapping[str, object]) -> tuple[NotMeasured, ...]:
    """Return the reason why the exchange of a job is not measured; empty if it is measured."""
    name = str(job.get("exchange", "unknown"))
    if name not in EXCHANGES.names():
        why = f"this version has no exchange {name}: its time may be part of the steps"
        return (NotMeasured("channel", "tensorflow", why),)
    declared: NotMeasured | None = EXCHANGES.declared(name).not_measured
    return () if declared is None else (declared,)
