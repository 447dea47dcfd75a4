"""Assembles the trace of a job without Spark, YARN and HDFS: the parent process and its ranks.

client -> driver (the parent) -> rank-0 .. rank-(n-1)
"""

from dlobd import spans as kinds
from dlobd.attribution.trace import Spans, Trace
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.search import missing, not_measured, unknown
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan, trainers
from dlobd.schema import MAIN_LANE, NOT_PART, Event, NotMeasured, Process
from dlobd.spans import Details, InstantKind
from dlobd.timeline import ranks as rank_lane
from dlobd.timeline.builder import OWN_MARK, LaneBuilder, Part, without_roles
from dlobd.timeline.ranks import Rank, whole_rank
from dlobd.tracing.clock import tick_ns

CLIENT = "client clock"
PARENT = "driver"

PLAIN_PROCESSES = tuple(
    NotMeasured(layer, "", f"{NOT_PART}: plain processes on local files") for layer in ("yarn", "spark", "feed", "hdfs")
)


def assemble(evidence: Evidence) -> Trace:
    """Return the trace of a run of plain processes. Raises BundleError if nothing was started."""
    window, host, parent = evidence.window, evidence.host, evidence.driver_process
    ranks = [whole_rank(process, "") for process in trainers(evidence.processes)]
    client = LaneBuilder(MAIN_LANE, Process(host, MAIN_LANE, 0, 0))
    client.add(kinds.START_PARENT, window["exec_ns"], window["started_ns"], CLIENT)
    client.add(kinds.WAIT_FOR_PARENT, window["started_ns"], window["exit_ns"], CLIENT, waits_for=(PARENT,))
    parts = [*client.parts, *_parent(evidence, host, ranks)]
    exits = [instant for instant in parent.instants if instant.name == kinds.RANK_EXITED] if parent else []
    exit_ns = {instant.attrs["rank"]: instant.at_ns for instant in reversed(exits)}
    for rank in ranks:
        parts += rank_lane.build(
            rank, (PARENT,), window["started_ns"], False, exit_ns.get(rank.process.rank), without_roles
        )
    parts += rank_lane.servers(evidence)
    startup, teardown = _anatomy(evidence, ranks)
    absences = missing(evidence)
    return Trace(
        start_ns=window["exec_ns"],
        end_ns=window["exit_ns"],
        spans=unknown(Spans.joined(parts), absences),
        anchors=evidence.anchors,
        not_measured=(*rank_lane.exchange_not_measured(evidence.job), *PLAIN_PROCESSES, *not_measured(absences)),
        startup=startup,
        teardown=teardown,
    )


def _parent(evidence: Evidence, host: str, ranks: list[Rank]) -> list[Part]:
    window, python = evidence.window, evidence.driver_process
    lane = LaneBuilder(PARENT, Process(host, "driver", 0, window["pid"]))
    if python is None:
        return []

    def resolve(span: RecordedSpan, wait: Details) -> Details:
        if kinds.WAIT_TRAINERS not in wait.get("waits_for", ()):
            return without_roles(span, wait)
        return {**wait, "waits_for": tuple(rank.lane for rank in ranks)}  # the last rank to end releases it

    first_ns = min((span.start_ns for span in python.spans), default=python.opened_ns)
    last_ns = max((span.end_ns for span in python.spans), default=python.last_ns)
    lane.add(kinds.PARENT_PYTHON_STARTS, window["started_ns"], first_ns, f"{CLIENT}, {OWN_MARK}")
    lane.add_recorded(python, resolve=resolve)
    lane.add(kinds.PARENT_PYTHON_EXITS, last_ns, window["exit_ns"], f"{OWN_MARK}, {CLIENT}")
    return lane.parts


def _anatomy(evidence: Evidence, ranks: list[Rank]) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    window, parent = evidence.window, evidence.driver_process
    firsts = [(at.at_ns, rank) for rank in ranks if (at := rank.process.instant(kinds.FIRST_STEP_DONE))]
    slowest = max(firsts, key=lambda pair: pair[0])[1] if firsts else None
    chief = next((rank.process for rank in ranks if rank.role == "chief"), None)
    startup = [Event(kinds.PARENT_EXEC, window["exec_ns"], CLIENT)]
    teardown = [Event(kinds.PARENT_EXIT, window["exit_ns"], CLIENT)]
    if parent and parent.process.start_ns is not None:
        startup.append(Event(kinds.PARENT_PYTHON_UP, parent.process.start_ns, "/proc", resolution_ns=tick_ns()))
    if slowest:
        startup.append(Event(kinds.RANK_PROCESS_UP, slowest.process.opened_ns, OWN_MARK, lane=slowest.lane))
        names = (kinds.TENSORFLOW_IMPORTED, kinds.RANKS_JOINED, kinds.FIRST_BATCH, kinds.FIRST_STEP_DONE)
        startup += _instants(slowest.process, *names)
    if chief:
        teardown += _instants(chief, kinds.LAST_STEP_DONE, kinds.SAVED, kinds.EVALUATED)
    if parent:
        teardown += _instants(parent, kinds.LAUNCHER_SHUT_DOWN)
    return tuple(sorted(startup, key=lambda e: e.at_ns)), tuple(sorted(teardown, key=lambda e: e.at_ns))


def _instants(process: RecordedProcess, *events: InstantKind) -> list[Event]:
    return [Event(event, at.at_ns, OWN_MARK) for event in events if (at := process.instant(event))]
