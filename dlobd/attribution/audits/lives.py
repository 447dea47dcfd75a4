"""The lives of processes, each told by several: the client, the JVM itself, its log, its NodeManager, the sampler."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from dlobd import spans as kinds
from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, foreign, other_clocks, worst
from dlobd.attribution.audits.clocks import APART_NS, jvm_logs
from dlobd.attribution.importers import jvm
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.jvm import JvmLife
from dlobd.attribution.importers.log4j import LogLine
from dlobd.attribution.importers.recorder import trainers
from dlobd.tracing.clock import tick_ns

JVM_ENDS_NS = 10 * 10**9
"""A JVM that has told its exit unmaps its memory and is gone, on a busy machine within seconds."""

SCRIPT_NS = 20_000_000
"""spark-submit is a shell script that runs a JVM to find the command of the one that it becomes: it needs 60 ms on the
fastest machines."""

STOPPING = ("G1", "Parallel", "Serial")
"""Collectors that collect only while all threads stand still; others count time in which they do not."""

BESIDE = "(Concurrent Start)"

STILL_NS = 2_000_000
"""A pause is timed beside what it stops: the line of one comes after its end."""

COLLECTED_NS = 50_000_000
"""The JVM times a pause for its log and for those who ask, one beside the other."""

JVM_CALLS = (kinds.SPARK_CONTEXT, kinds.SPARK_CONTEXT_STOP)
"""Spans that are calls of the JVM in every job."""

MS = 1_000_000

_DIED = re.compile(r"trainer process (\d+)\b.* died: killed by signal")

COLLECTION = r'"GET /ws/v1/(?:cluster/apps/{}|node/containers) HTTP.*"python-requests/'
"""How a manager logs that it was asked for its record of an application, or of its containers."""


def _ended_by_itself(evidence: Evidence) -> bool:
    return not evidence.window["ended_by"] and evidence.window["exit_code"] == 0 and not evidence.by_hand


def _submitter(evidence: Evidence) -> Figures:
    life, window = evidence.submit_jvm, evidence.window
    if life is None or evidence.by_hand or evidence.native:
        return Figures(why="no JVM was started inside the window")
    outside = [window["exec_ns"] + SCRIPT_NS - life.start_ns, window["started_ns"] - life.start_ns - APART_NS]
    if life.exit_ns is not None:
        outside.append(life.exit_ns - window["exit_ns"])
        if _ended_by_itself(evidence):
            outside.append(window["exit_ns"] - life.exit_ns - JVM_ENDS_NS)
    return worst(outside, 0)


def _lives(evidence: Evidence) -> Iterator[tuple[JvmLife, list[LogLine]]]:
    """Each JVM's life with what it logged."""
    if evidence.submit_jvm and not evidence.by_hand:
        yield evidence.submit_jvm, evidence.submit_lines
    for container in evidence.containers:
        if life := evidence.container_jvm(container):
            yield life, evidence.container_log(container)


def _logs_in_lives(evidence: Evidence) -> Figures:
    outside = []
    for life, lines in _lives(evidence):
        stamps = [line.at_ns for line in lines]
        outside += [life.start_ns - at_ns for at_ns in stamps[:1]]
        # threads that nobody waits for go on while their JVM ends
        outside += [at_ns - life.exit_ns - JVM_ENDS_NS for at_ns in stamps[-1:] if life.exit_ns is not None]
    # a JVM has one thread when it writes its first line
    outside += [stamps[0] - min(stamps) for path in jvm_logs(evidence) if (stamps := jvm.stamps(path))]
    return worst(outside, 0, other_clocks(evidence))


def _calls_of_driver(evidence: Evidence) -> Figures:
    """The driver's Python calls its JVM, which answers as long as it lives."""
    driver, life = evidence.driver_process, evidence.driver_jvm
    if driver is None or life is None or life.exit_ns is None:
        return Figures()
    answered = [s.end_ns for name in JVM_CALLS for s in driver.named(name) if not s.truncated]
    answered += [s.end_ns for s in driver.spans if s.attrs.get("jvm_call") and not s.truncated]
    return worst([end_ns - life.exit_ns for end_ns in answered], 0, other_clocks(evidence))


def _containers(evidence: Evidence) -> Figures:
    outside = []
    for container, marks in evidence.yarn.containers.items():
        life = evidence.container_jvm(container)
        if life is None:
            continue
        # the NodeManager tells that it starts a container before it does, and that one has ended after it has
        if "SCHEDULED" in marks.at:
            outside.append(marks.at["SCHEDULED"] - life.start_ns)
        if "EXITED" in marks.at and life.exit_ns is not None:
            outside.append(life.exit_ns - marks.at["EXITED"])
    return worst(outside, APART_NS, other_clocks(evidence))


def _sampled(evidence: Evidence) -> Figures:
    host, window = evidence.resources, evidence.window
    if host is None or not host.samples or evidence.by_hand:
        return Figures()
    lost = any("sampler" in line for line in evidence.collected["missing"])
    outside = [host.samples[0].at_ns - window["exec_ns"]]
    if not lost:
        outside.append(window["exit_ns"] - host.samples[-1].at_ns)
    for process in host.processes:
        if process.pid == window["pid"] and process.start_ns is not None:
            outside.append(window["exec_ns"] - process.start_ns - tick_ns())
            outside.append(process.start_ns - window["started_ns"] - tick_ns())
            outside += [sample.at_ns - window["exit_ns"] for sample in process.samples[-1:]]
    return worst(outside, APART_NS if evidence.window["ended_by"] else 0)


def _starts(evidence: Evidence) -> Figures:
    host = evidence.resources
    if host is None:
        return Figures()
    own = {p.process.pid: p for p in evidence.processes if p.domain == host.domain and p.process.start_ns is not None}
    apart = []
    for sampled in host.processes:
        found = own.get(sampled.pid)
        if found and found.process.start_ns is not None and sampled.start_ns is not None:
            apart.append(abs(found.process.start_ns - sampled.start_ns))
    return worst(apart, tick_ns())


def _opened(evidence: Evidence) -> Figures:
    outside, window = [], evidence.window
    for process in evidence.processes:
        if process.process.start_ns is not None:
            outside.append(process.process.start_ns - process.opened_ns - tick_ns())
            if not evidence.by_hand:
                outside.append(window["exec_ns"] - process.process.start_ns - tick_ns())
    return worst(outside, 0, other_clocks(evidence))


def _seen_to_exit(evidence: Evidence) -> Figures:
    """A parent sees that a rank has exited, or was killed, after that rank's last record."""
    by_pid = {p.process.pid: p.last_ns for p in evidence.processes}
    by_rank = {process.rank: process.last_ns for process in trainers(evidence.processes)}
    early = [
        by_rank[instant.attrs["rank"]] - instant.at_ns
        for process in evidence.processes
        for instant in process.instants
        if instant.name == kinds.RANK_EXITED and instant.attrs.get("rank") in by_rank
    ]
    for process in evidence.processes:
        for instant in process.instants:
            died = _DIED.search(str(instant.attrs.get("cause", ""))) if instant.name == kinds.TRAINER_DIED else None
            if died and int(died[1]) in by_pid:
                early.append(by_pid[int(died[1])] - instant.at_ns)
    # elsewhere containers may have process ids of their own
    return worst(early, 0, foreign(evidence) or other_clocks(evidence))


def _numbers(evidence: Evidence) -> Figures:
    """A JVM numbers its collections from 0, and writes all of them into one file, which it begins anew when that is too
    large. One that goes on beside the program has the number after the pause that starts it, and no pause of its own if
    it is cut short."""
    logs = [(path, found) for path in jvm_logs(evidence) if (found := jvm.collections(path))]
    missing = [
        number
        for path, found in logs
        for number in range(0 if jvm.collector(path) else min(found), max(found))
        if number not in found and BESIDE not in found.get(number - 1, "")
    ]
    return Figures(len(missing), 0) if logs else Figures()


def _garbage(evidence: Evidence) -> Figures:
    """A task's time for garbage collection is that of its JVM meanwhile, whoever made the garbage."""
    collected = {task.id: task.raw.get("JVM GC Time", 0) for task in evidence.tasks}
    excess = []
    for executor, log in evidence.executors.items():
        container = evidence.executor_containers[executor]
        life = evidence.container_jvm(container)
        if life is None or life.collector not in STOPPING:
            continue
        for task, begin_ns in log.got.items():
            if task in collected:
                end_ns = log.finished.get(task, evidence.window["exit_ns"])
                pauses = [until - begin for begin, until in life.pauses if until >= begin_ns and begin <= end_ns]
                excess.append(collected[task] * MS - sum(pauses) - (len(pauses) + 1) * MS)
    return worst(excess, COLLECTED_NS)


def _stand_still(evidence: Evidence) -> Figures:
    """No thread of a JVM logs while all of them stand still."""
    inside = []
    for life, lines in _lives(evidence):
        stamps = sorted(line.at_ns for line in lines)
        for begin_ns, end_ns in life.pauses if life.collector in STOPPING else ():
            within = stamps[bisect_right(stamps, begin_ns) : bisect_left(stamps, end_ns)]
            inside += [min(at_ns - begin_ns, end_ns - at_ns) for at_ns in within] or [0]
    return worst(inside, STILL_NS, other_clocks(evidence))


def _collected_after(evidence: Evidence) -> Figures:
    """dlobd asks the managers for their records of the application once spark-submit has exited."""
    if not _ended_by_itself(evidence) or evidence.own or evidence.external:
        return Figures(why="dlobd, or a script, may ask the managers earlier")
    application = evidence.window["application_id"]
    asked = [
        line.at_ns
        for daemon in evidence.daemon_logs
        if daemon.startswith(("resourcemanager", "nodemanager"))
        for line in evidence.daemon_log(daemon)
        if re.search(COLLECTION.format(application), line.message)
    ]
    return worst([evidence.window["exit_ns"] - at_ns for at_ns in asked], 0)


RULES = (
    Rule(
        "spark-submit's JVM", "The JVM of spark-submit began after exec and ended shortly before spark-submit did.",
        "its JVM log and the client's clock: ns outside", "-, ns", NOT_MORE, _submitter,
    ),
    Rule(
        "logs and lives of JVMs", "What a JVM logged, it logged between its first line and its exit.",
        "logs: ns outside of the JVM logs' start and exit", "-, ns", NOT_MORE, _logs_in_lives,
    ),
    Rule(
        "calls of the driver's JVM", "While the driver's Python called its JVM, that had not ended.",
        "span files: ns after its exit", "JVM log, ns", NOT_MORE, _calls_of_driver,
    ),
    Rule(
        "containers and their JVMs", "A container's JVM began after its NodeManager started it, and ended before the "
        "NodeManager saw that it had.",
        "JVM logs and NodeManager logs: ns outside", "what a busy machine may hold a thread up, ns",
        NOT_MORE, _containers,
    ),
    Rule(
        "window and samples", "The sampler of resource use began before the window and ended after it, and saw "
        "spark-submit start and live inside.",
        "samples and client clock: ns outside", "a sample's own length, ns", NOT_MORE, _sampled,
    ),
    Rule(
        "starts of processes", "A recorded process began when the sampler says that it did.",
        "span files and samples: ns apart", "kernel tick, ns", NOT_MORE, _starts,
    ),
    Rule(
        "start and first record", "A process was started inside the window, before it recorded anything.",
        "/proc: ns outside", "client clock and span files, ns", NOT_MORE, _opened,
    ),
    Rule(
        "exits of ranks", "A parent saw a rank's exit, or its death, after that rank's last record.",
        "span files: ns by which it is earlier", "one machine's clock, ns", NOT_MORE, _seen_to_exit,
    ),
    Rule(
        "numbers of collections", "A JVM numbers its collections, and none is missing from its log.",
        "JVM logs: numbers that are missing", "-", EQUAL, _numbers,
    ),
    Rule(
        "collections in tasks", "A task's time for garbage collection is in the pauses of its executor's JVM.",
        "event log: ns that are not in pauses of the JVM log", "what a busy machine may hold a thread up, ns",
        NOT_MORE, _garbage,
    ),
    Rule(
        "lines inside collections", "No thread of a JVM logged while all of them stood still for a collection.",
        "logs and JVM logs: ns by which a line lies inside", "resolution of the JVM log, ns", NOT_MORE, _stand_still,
    ),
    Rule(
        "collection after the window", "dlobd asked YARN's managers for their records after spark-submit's exit.",
        "RM and NM logs: ns by which it was earlier", "client clock, ns", NOT_MORE, _collected_after,
    ),
)  # fmt: skip
