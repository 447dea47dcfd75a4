"""Finds absent and truncated logs of the driver, of containers and of daemons."""

import re
from collections.abc import Iterator, Sequence

from dlobd.bundle import files
from dlobd.evidence import jvm
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import kinds
from dlobd.evidence.expected.kinds import ALL_LANES, MissingEvidence, ended_well, killed, lanes_of_executor
from dlobd.evidence.log4j import LogLine
from dlobd.spans import SPARK_CONTEXT

DRIVER_ENDS = ("Successfully stopped SparkContext", "Shutdown hook called", "SparkContext already stopped")
SUBMITTER_ENDS = ("(state: FINISHED)", "final status:", "Shutdown hook called")
EXECUTOR_ENDS = (
    "Driver commanded a shutdown",
    "Shutdown hook called",
    "RECEIVED SIGNAL",
    "disconnected during shutdown",
)
CONTAINER_BEGINS = "Registering signal handler for TERM"
MASTER_ENDS = ("Unregistering ApplicationMaster", "Shutdown hook called", "RECEIVED SIGNAL")
"""Messages at the end of each kind of log, and at the start of a container's log, unless the process was killed."""

LIMITS = ("max_steps", "max_seconds", "target_accuracy")
"""Settings of a job that may end it before it has read all of its input."""

_MASTER = re.compile(r"container_(?:e\d+_)?\d+_\d+_\d+_000001")


def absences(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield logs that are absent, or lack their start or end."""
    topology = evidence.topology
    if not topology.by_hand or evidence.on_file(evidence.submitter_log):
        yield from _driver(evidence)
    elif not topology.driver_in_container:
        yield MissingEvidence(kinds.DRIVER_LOG, evidence.submitter_log, "is absent", ALL_LANES)
    if not topology.has_spark:
        return
    for application in evidence.applications:
        if application.topology.has_yarn:
            yield from _master(application)
    yield from _executors(evidence)
    yield from _daemons(evidence)


def _driver(evidence: Evidence) -> Iterator[MissingEvidence]:
    own, topology = evidence.submitter_log, evidence.topology
    for name in dict.fromkeys((own, files.DRIVER_STDERR, files.DRIVER_STDOUT)):
        kind = kinds.DRIVER_LOG if topology.has_spark else kinds.NATIVE_LOG
        kind = kinds.DRIVER_OUTPUT if name != own else kind
        if not evidence.on_file(name):
            yield MissingEvidence(kind, name, "is absent", ALL_LANES if kind.decides else ())
    if topology.by_hand or not topology.has_spark:
        return
    life = jvm.read(evidence.path / files.DRIVER_JVM_LOG)
    if life is None:
        yield MissingEvidence(kinds.DRIVER_JVM, files.DRIVER_JVM_LOG, "is absent, or has no line", ALL_LANES)
    elif ended_well(evidence) and life.exit_ns is None:
        yield MissingEvidence(kinds.DRIVER_JVM, files.DRIVER_JVM_LOG, "ends before its JVM exited", ALL_LANES)
    if evidence.on_file(own) and ended_well(evidence):
        lines, ends = evidence.submitter.lines, SUBMITTER_ENDS if topology.driver_in_container else DRIVER_ENDS
        yield from _whole(kinds.DRIVER_LOG, own, lines, ends, ALL_LANES)
        if not topology.driver_in_container:
            yield from _headless(evidence, lines, own)


def _headless(evidence: Evidence, lines: Sequence[LogLine], name: str) -> Iterator[MissingEvidence]:
    """Yield a log of the driver's JVM that begins after its SparkContext was created."""
    driver = evidence.driver_process
    context = driver.named(SPARK_CONTEXT) if driver else ()
    if lines and context and "JVM SparkContext" not in evidence.driver.log.points:
        yield MissingEvidence(kinds.DRIVER_LOG, name, "begins after the start of the SparkContext", ALL_LANES)


def _whole(
    kind: kinds.EvidenceKind,
    name: str,
    lines: Sequence[LogLine],
    ends: Sequence[str],
    lanes: tuple[str, ...],
    begins: str = "",
) -> Iterator[MissingEvidence]:
    if not lines:
        yield MissingEvidence(kind, name, "has no line with the timestamps of dlobd's log4j2 pattern", lanes)
    elif begins and not any(begins in line.message for line in lines[:5]):
        yield MissingEvidence(kind, name, f"begins late: its first line is {lines[0].message[:60]!r}", lanes)
    elif not any(end in line.message for line in lines for end in ends):
        how = f"ends early: its last line is {lines[-1].message[:60]!r}"
        yield MissingEvidence(kind, name, how, lanes, lines[-1].at_ns)


def _master(evidence: Evidence) -> Iterator[MissingEvidence]:
    if not ended_well(evidence) or not evidence.window["application_id"]:
        return
    container = next(filter(_MASTER.fullmatch, reversed(evidence.attempts.ams)), None)
    name = evidence.log_of(container or "the ApplicationMaster")
    if container is None or not evidence.on_file(name):
        yield MissingEvidence(kinds.MASTER_LOG, name, "is absent", ALL_LANES)
    else:
        lines = evidence.container_log(container)
        yield from _whole(kinds.MASTER_LOG, name, lines, MASTER_ENDS, ALL_LANES, CONTAINER_BEGINS)
        if evidence.topology.driver_in_container:
            yield from _headless(evidence, lines, name)
        for executor in sorted(evidence.driver.log.registered.keys() - evidence.executor_containers.keys()):
            how = f"lacks the container of executor {executor}, which registered"
            yield MissingEvidence(kinds.MASTER_LOG, name, how, ALL_LANES)
    if container is not None:
        yield from _jvm_log(evidence, container)


def _executors(evidence: Evidence) -> Iterator[MissingEvidence]:
    if not ended_well(evidence):
        return
    gone = killed(evidence)
    for executor in sorted(evidence.driver.log.registered.keys() | evidence.executor_containers.keys()):
        container = evidence.executor_containers.get(executor)
        lanes = (*lanes_of_executor(executor), "rank-*", "driver")
        if container is None:
            if not evidence.topology.has_yarn:
                what = evidence.log_of(f"executor_{executor}")
                yield MissingEvidence(kinds.EXECUTOR_LOG, what, "is absent", lanes)
            continue  # reported as a defect of the ApplicationMaster's log
        name = evidence.log_of(container)
        if not evidence.on_file(name):
            if executor in evidence.driver.log.registered:
                yield MissingEvidence(kinds.EXECUTOR_LOG, name, "is absent", lanes)
        elif container not in gone:
            lines = evidence.container_log(container)
            yield from _whole(kinds.EXECUTOR_LOG, name, lines, EXECUTOR_ENDS, lanes, CONTAINER_BEGINS)
        if executor in evidence.driver.log.registered:
            yield from _jvm_log(evidence, container)


def _jvm_log(evidence: Evidence, container: str) -> Iterator[MissingEvidence]:
    name = f"{files.CONTAINER_LOGS}/{container}/jvm.log"
    if jvm.read(evidence.path / name) is None:
        yield MissingEvidence(kinds.CONTAINER_JVM, name, "is absent, or has no line")
    output = f"{files.CONTAINER_LOGS}/{container}/stderr"
    if evidence.own_logs and not evidence.on_file(output):
        yield MissingEvidence(kinds.CONTAINER_FILES, output, "is absent")


def _daemons(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield missing logs of daemons. On an external cluster the collection itself reports missing logs."""
    if evidence.topology.external or not ended_well(evidence):
        return
    for daemon in evidence.daemons:
        name = f"{files.DAEMON_LOGS}/{daemon['name']}.log"
        if daemon["name"] == "resourcemanager" and not evidence.topology.has_yarn:
            continue  # its log has no line of the job
        if not evidence.on_file(name):
            kind = kinds.kind_of(name) or kinds.DAEMON_LOGS
            yield MissingEvidence(kind, name, "is absent, although the daemon ran", ALL_LANES)
    yield from of_hdfs(evidence)
    for application in evidence.applications:
        if application.topology.has_yarn:
            yield from _of_yarn(application)


def _of_yarn(evidence: Evidence) -> Iterator[MissingEvidence]:
    at = evidence.yarn.application.at
    name = f"{files.DAEMON_LOGS}/resourcemanager.log"
    if not evidence.on_file(name):
        yield MissingEvidence(kinds.RM_LOG, name, "is absent", ALL_LANES)
    elif "ACCEPTED" not in at:
        yield MissingEvidence(kinds.RM_LOG, name, "begins after the application was accepted", ALL_LANES)
    elif "FINISHED" not in at:
        yield MissingEvidence(kinds.RM_LOG, name, "ends before the application finished", ALL_LANES)
    # containers without lines in any NodeManager's log
    containers = {c: i for i, c in evidence.executor_containers.items() if i in evidence.driver.log.registered}
    containers |= {c: "AM" for c in evidence.attempts.ams if _MASTER.fullmatch(c)}
    for container in sorted(containers):
        marks, what = evidence.yarn.containers.get(container), f"the NodeManager log of {container}"
        if marks is None or "START_REQUEST" not in marks.at:
            yield MissingEvidence(kinds.NM_LOG, what, "is absent, or begins after the container's start", ALL_LANES)
        elif "RUNNING" not in marks.at:
            yield MissingEvidence(kinds.NM_LOG, what, "ends before the container ran", ALL_LANES)


def of_hdfs(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield missing logs of the NameNode and the DataNodes."""
    audit = f"{files.DAEMON_LOGS}/namenode-audit.log"
    if not evidence.hdfs.audits:
        yield MissingEvidence(kinds.AUDIT_LOG, audit, "is absent, or has no line")
    else:
        known = {line.path for line in evidence.hdfs.audits}
        if lost := [path for _, path, _ in evidence.submitter.log.uploads if path not in known]:
            yield MissingEvidence(kinds.AUDIT_LOG, audit, f"lacks the upload of {lost[0]}: it begins late")
        elif any(map(_closed_unseen, evidence.applications)):
            yield MissingEvidence(kinds.AUDIT_LOG, audit, "lacks the end of the event log: it ends early")
    namenode = f"{files.DAEMON_LOGS}/namenode.log"
    if not evidence.on_file(namenode):
        yield MissingEvidence(kinds.NAMENODE_LOG, namenode, "is absent")
    yield from _datanodes(evidence)


def _closed_unseen(evidence: Evidence) -> bool:
    """Return True if Spark closed its event log, but the audit log has no rename or earlier deletion of it."""
    number, audits = str(evidence.window["application_id"]), evidence.hdfs.audits
    closing = evidence.driver.log.points.get("event log closing")
    if closing is None or evidence.driver.log.has_local_events:
        return False
    if any(one.command == "rename" and number in one.path for one in audits):
        return False
    created = [one.path for one in audits if one.command == "create" and number in one.path]
    # the file, or a directory above it
    deleted = [one.path.rstrip("/") for one in audits if one.command == "delete" and one.at_ns <= closing.at_ns]
    return not any(f"{path}/".startswith(f"{top}/") for path in created for top in deleted)


def _datanodes(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield missing client traces. They are numbered from 0, and together they contain each block of the input."""
    there = sorted(path.name for path in (evidence.path / files.DAEMON_LOGS).glob("datanode-*-clienttrace.log"))
    running = sum(daemon["kind"] == "datanode" for daemon in evidence.daemons)
    wanted = [f"datanode-{i}-clienttrace.log" for i in range(max(len(there), running))]
    for name in wanted:
        if name not in there:
            yield MissingEvidence(kinds.TRACE_LOG, f"{files.DAEMON_LOGS}/{name}", "is absent")
    read = {transfer.block for transfer in evidence.hdfs.transfers}
    blocks = {block for found in evidence.hdfs.blocks.values() for block in found}
    whole = not any(evidence.job.get(limit) for limit in LIMITS)
    if whole and (unread := sorted(blocks - read)) and len(wanted) == len(there):
        how = f"has no transfer of {unread[0]}, which the job read"
        yield MissingEvidence(kinds.TRACE_LOG, "DataNode client trace", how)
