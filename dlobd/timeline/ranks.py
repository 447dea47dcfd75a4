"""Finds the trainers of a run, and builds their lanes and those of parameter servers.

A rank is a trainer: a process or a part of a Python worker. Its lane has its preparation by its executor, and its
trainer from start to end. A parameter server has a lane per worker, because it serves workers in parallel.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlobd import spans as kinds
from dlobd.axes import EXCHANGES
from dlobd.columns import NONE, Flags
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.feed import passed_ns
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import STOPPED, TRAINING, RecordedProcess
from dlobd.schema import NotMeasured
from dlobd.spans import Details
from dlobd.timeline.builder import OWN_MARK, Handover, LaneBuilder, Part, Resolve, of_threads

_REQUESTS = re.compile(r"Submitted (\d+) unlocalized container requests")
ROLES = (*TRAINING, *STOPPED)
FRAMEWORKS = ((kinds.USER_CODE, "PyTorch"), (kinds.TRAINER, "XGBoost"))
"""Kind of the main function of a rank, and its framework. Under TensorFlowOnSpark the kind is another."""
ON_DRIVER = ""
"""Executor of the trainers that the driver starts."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A trainer on an executor."""

    process: RecordedProcess
    executor: str
    role: str
    index: int
    start_ns: int
    end_ns: int
    whole: bool  # the process is only this trainer, from `start_ns` to `end_ns`
    main: RecordedSpan | None = None  # the user's main function, if the script is the user's own

    @property
    def lane(self) -> str:
        """`rank-0` for the chief, `rank-(i + 1)` for worker i; other roles by their name."""
        if self.role in TRAINING:
            return f"rank-{self.index + 1 if self.role == 'worker' else self.index}"
        return f"{self.role}-{self.index}"

    @property
    def framework(self) -> str:
        """The framework that trains, if it is not TensorFlow."""
        return next((name for kind, name in FRAMEWORKS if self.main and self.main.kind is kind), "")

    @property
    def spans(self) -> RecordedSpans:
        """Its recorded spans, of all threads."""
        return self.process.spans if self.whole else self.process.spans.where(self.has)

    @property
    def has(self) -> Flags:
        """True for each span of the process that is a span of the rank."""
        spans = self.process.spans
        return ((self.start_ns <= spans.start_ns) & (spans.end_ns <= self.end_ns)) | self.whole

    def named(self, *names: str) -> RecordedSpans:
        """Return all its spans with one of these names."""
        return self.spans.named(*names)

    @property
    def finished(self) -> tuple[bool, int]:
        """Sort key: True if the end of its work was not recorded, and the time of the end."""
        if self.main is not None:
            return self.main.truncated, self.main.end_ns
        # the process may continue: inside a Spark task it is Spark's own Python worker
        done = self.named(kinds.WRITE_DONE_MARKER)
        return not done, done[-1].end_ns if done else self.process.last_ns

    def releases(self, sleep: RecordedSpan) -> Details:
        """Return the release of a sleep that waits for this trainer; the rest of the sleep is its poll."""
        unfinished, done_ns = self.finished
        at_work = unfinished or done_ns >= sleep.end_ns
        return {"waits_for": (self.lane,), "released_ns": None if at_work else max(done_ns, sleep.start_ns)}


def ranks(evidence: Evidence) -> list[Rank]:
    """Return all trainers, by executor and time. A role may occur again if a script trains several times."""
    found: list[Rank] = []
    for executor, container in evidence.executor_containers.items():
        for process in evidence.recorded_in(container):
            if not is_server(evidence, process):
                found += _of(process, executor)
    driver = evidence.driver_process if evidence.topology.user_script else None
    for process in evidence.recorded_in(driver.path.parent.name) if driver else ():
        if process.process.role in ROLES:
            found += _of(process, ON_DRIVER)
    return found


def is_server(evidence: Evidence, process: RecordedProcess) -> bool:
    """Return True for dlobd's parameter servers, which do not train. A script's ps is TensorFlow's own server."""
    return process.process.role == "ps" and not evidence.topology.user_script


def last_executor(evidence: Evidence, found: Sequence[Rank]) -> str | None:
    """Return the executor that registered last, ignoring replacements of lost executors."""
    trained = {rank.executor for rank in found} & evidence.executors.keys() or evidence.executors.keys()
    registered = sorted((line.at_ns, e) for e, line in evidence.driver.log.registered.items() if e in trained)
    requested = evidence.application_master.requested
    wanted = _REQUESTS.search(requested.message) if requested else None
    in_time = registered[: int(wanted[1])] if wanted else registered
    return in_time[-1][1] if in_time else None


def whole_rank(process: RecordedProcess, executor: str, main: RecordedSpan | None = None) -> Rank:
    """Return the rank of a process that is only a trainer."""
    start_ns = process.opened_ns if process.forked else process.process.start_ns or process.opened_ns
    role, index = process.process.role, process.process.index
    return Rank(process, executor, role, index, start_ns, process.last_ns, True, main)


def _of(process: RecordedProcess, executor: str) -> Iterator[Rank]:
    mains = process.spans.mains
    if process.process.role in ROLES:
        yield whole_rank(process, executor, mains[0] if mains else None)
        return
    for main in mains:
        role, index = main.attrs["role"], main.attrs["index"]
        yield Rank(process, executor, role, index, main.start_ns, main.end_ns, False, main)


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
    reader = f"{rank.lane}/reader"  # its reading threads, of tf.data or of its launcher: only one works at a time
    lanes = {kinds.WAIT_FEEDER: executor, kinds.WAIT_READER: (reader,)}

    def add(to: LaneBuilder, some: Flags) -> list[Part]:
        handover = Handover(kinds.TAKE_BLOCK, given_since_ns[some], error_ns[some])
        to.add_recorded(process, spans.where(some), resolve, lanes, handover)
        return to.parts

    found, main = add(lane, spans.in_main_thread), spans.in_main_thread
    if not rank.main:
        return [*found, *add(LaneBuilder(reader, process.process, rank.start_ns), ~main)]
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
