"""Finds span files that are absent or incomplete; other sources show which processes the run had."""

from collections.abc import Iterator

from dlobd import spans as kinds
from dlobd.columns import NONE
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import kinds as sources
from dlobd.evidence.expected.kinds import ALL_LANES, MissingEvidence, ended_well, killed, lanes_of_executor, process_id
from dlobd.evidence.recorder import CHILD, STOPPED, TRAINING, RecordedProcess, lost_lines, trainers

SERVING = ("ps", "ps-async")

_RUNS_PYTHON = "python.PythonRunner"
_PYTHON_DONE = "Times: "


def absences(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield processes without spans and incomplete span files; nothing if the recorder was off."""
    if evidence.span_cost and evidence.span_cost["recording"] == "off":
        return
    if evidence.driver_process is None:
        yield _absent(sources.DRIVER_SPANS, "the driver", ALL_LANES)
    yield from _ranks(evidence)
    yield from _workers(evidence)
    if ended_well(evidence):
        yield from _relatives(evidence)
        yield from _counters(evidence)
        yield from _parts(evidence)
    yield from _lost(evidence)


def lanes_of(evidence: Evidence, directory: str) -> tuple[str, ...]:
    """Return the lanes whose time is unknown without the spans of a process in this directory."""
    executor = evidence.executor_of.get(directory)
    return (*lanes_of_executor(executor), "rank-*", "driver") if executor else ALL_LANES


def _absent(kind: sources.EvidenceKind, what: str, lanes: tuple[str, ...]) -> MissingEvidence:
    return MissingEvidence(kind, f"the span file of {what}", "is absent", lanes)


def _ranks(evidence: Evidence) -> Iterator[MissingEvidence]:
    found = {(process.process.role, process.process.index) for process in evidence.processes}
    if evidence.topology.user_script:
        yield from _own_ranks(evidence)
        return
    workers = evidence.job.get("workers", 0) if ended_well(evidence) else 0  # a failed job may lack them
    for rank in range(workers):
        who = ("chief", 0) if rank == 0 else ("worker", rank - 1)
        if who not in found:
            yield _absent(sources.RANK_SPANS, f"rank {rank} ({who[0]} {who[1]})", ALL_LANES)
    servers = evidence.job.get("exchange_servers", 1) if evidence.job.get("exchange") in SERVING and workers > 1 else 0
    for server in range(servers):
        if ("ps", server) not in found:
            yield _absent(sources.RANK_SPANS, f"parameter server {server}", ("rank-*",))


def _own_ranks(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield a defect if TFCluster.run recorded more nodes than main functions ran."""
    driver = evidence.driver_process
    nodes = sum(span.attrs.get("nodes", 0) for span in driver.named(kinds.TFCLUSTER_RUN)) if driver else 0
    mains = sum(len(process.spans.mains) for process in evidence.processes)
    if ended_well(evidence) and mains < nodes:
        what = f"spans of {nodes - mains} of {nodes} nodes of TFCluster.run"
        yield MissingEvidence(sources.RANK_SPANS, what, "are absent", ALL_LANES)


def _workers(evidence: Evidence) -> Iterator[MissingEvidence]:
    gone = killed(evidence)
    for executor, container in evidence.executor_containers.items():
        lines = [line for line in evidence.container_log(container) if line.logger == _RUNS_PYTHON]
        if container in gone and not any(line.message.startswith(_PYTHON_DONE) for line in lines):
            continue  # it may have died while its first worker started
        here = [one for one in evidence.recorded_in(container) if one.process.role != kinds.TORCHRUN_ROLE]
        lanes = lanes_of(evidence, container)
        by_log = "absent, although the executor ran Python according to its log"
        if lines and all(process.forked or process.rank is not None for process in here):
            what = f"the span file of executor {executor}'s Python daemon"
            yield MissingEvidence(sources.WORKER_SPANS, what, f"is {by_log}", lanes)
        elif lines and not any(process.forked for process in here):
            what = f"all span files of executor {executor}'s Python workers"
            yield MissingEvidence(sources.WORKER_SPANS, what, f"are {by_log}", lanes)


def _relatives(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield processes without span files that are the child or the parent of a recorded process."""
    there = {(process.path.parent.name, process.process.pid) for process in evidence.all_processes}
    reported: set[tuple[str, int]] = set()
    gone = killed(evidence)  # such a process may have died before it wrote a line
    for process in evidence.processes:
        directory = process.path.parent.name
        for pid, kind, how in _named(process):
            if (directory, pid) not in there | reported and directory not in gone:
                reported.add((directory, pid))
                what = f"the span file of process {pid} in {directory}"
                absent = f"is absent, although process {process.process.pid} {how}"
                lanes = lanes_of(evidence, directory)
                yield MissingEvidence(kind, what, absent, lanes, process=process_id(directory, pid))


def _named(process: RecordedProcess) -> Iterator[tuple[int, sources.EvidenceKind, str]]:
    """Yield the PIDs in a process's records, with the kind of their spans and the proof of their existence."""
    for instant in process.instants:
        if instant.name == kinds.WORKER_FORKED:
            yield instant.attrs["pid"], sources.WORKER_SPANS, "forked it as a Python worker"
    for span in process.named(kinds.FORK_TRAINER, kinds.START_CHILD):
        if "pid" in span.attrs:
            yield span.attrs["pid"], sources.RANK_SPANS, "started it as a trainer"
    if process.forked and (process.parent or 0) > 1:
        assert process.parent is not None
        yield process.parent, sources.WORKER_SPANS, "was forked by it"


def _counters(evidence: Evidence) -> Iterator[MissingEvidence]:
    if evidence.topology.user_script or evidence.job.get("workers", 1) < 2:
        return
    for process in trainers(evidence.processes):
        who = process.process
        if process.instant(kinds.TRANSPORT) is None:
            what = f"the transport counters of {who.role} {who.index}"
            yield MissingEvidence(sources.COUNTERS, what, "are absent from its span file")


def _parts(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield span files without a first line or an end, with damaged lines, or with fewer lines than were recorded."""
    gone = killed(evidence)
    # Spark kills the Python worker of a task that it kills
    given_up = {task.id for task in evidence.driver.log.tasks if task.loss}
    for path, process in evidence.span_files.items():
        directory = path.parent.name
        how = _defect(process)
        # these may be killed at any time, as part of a job that ends well
        stopped = process and (process.is_child or (process.process.role in STOPPED and evidence.topology.user_script))
        in_task = process and given_up & {
            *process.spans.where(process.spans.truncated).values("task_attempt", NONE).tolist()
        }
        if how and not (process and (stopped or in_task or directory in gone) and process.bad_lines <= 1):
            role = process.process.role if process else "driver" if directory == "driver" else "python-worker"
            kinds_of = {
                "driver": sources.DRIVER_SPANS,
                "python-worker": sources.WORKER_SPANS,
                CHILD: sources.CHILD_SPANS,
            }
            kind = kinds_of.get(role, sources.RANK_SPANS)
            what = f"the span file {directory}/{path.name}"
            yield MissingEvidence(kind, what, how, lanes_of(evidence, directory))


def _defect(process: RecordedProcess | None) -> str:
    if process is None:
        return "does not begin with the line of its process"
    if process.bad_lines:
        return f"has {process.bad_lines} damaged lines"
    if process.cost and process.cost_at != process.cost.lines:
        return f"has {process.cost_at} lines, but its recorder wrote {process.cost.lines}"
    # another thread may be inside a span at the end of a process: a daemon thread that waits for its queue
    if opened := process.spans.where(process.spans.truncated & process.spans.in_main_thread):
        return f"ends early: {len(opened)} spans have no end, such as {opened[0].name!r}"
    own = process.process.role in ("driver", *TRAINING)
    if own and process.cost is None:
        return "ends early: it lacks the cost of recording"
    return ""


def _lost(evidence: Evidence) -> Iterator[MissingEvidence]:
    children = {(process.path.parent.name, process.process.pid) for process in evidence.children}
    for (directory, pid), lost in lost_lines(evidence.path, evidence.all_processes).items():
        if lost:
            native = sources.RANK_SPANS if directory == "driver" else sources.WORKER_SPANS
            kind = sources.DRIVER_SPANS if directory == "driver" and evidence.topology.has_spark else native
            kind = sources.CHILD_SPANS if (directory, pid) in children else kind
            what, how = f"{lost} lines of the spans of process {pid} in {directory}", "were lost: its disk refused them"
            yield MissingEvidence(kind, what, how, lanes_of(evidence, directory), process=process_id(directory, pid))
