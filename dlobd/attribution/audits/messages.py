"""Causes and effects that two processes logged, each its own side: nothing was received before it was sent."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd.attribution.audits.base import NOT_MORE, Figures, Rule, incomplete, other_clocks, training_job, worst
from dlobd.attribution.audits.hdfs import BLOCK_BYTES, staged_blocks
from dlobd.attribution.importers import rpc
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.hdfs import close_answers
from dlobd.attribution.importers.log4j import LogLine
from dlobd.attribution.importers.recorder import trainers
from dlobd.attribution.importers.timestamp import error_of
from dlobd.bundle import files, reading
from dlobd.tracing import names

LOG_NS = 50_000_000
"""A line is logged beside what it tells of: a busy machine may hold the thread up between the two."""

Message = tuple[int | None, int | None]
"""When it was sent and when it was received."""


def _at(line: LogLine | None) -> int | None:
    return line.at_ns if line else None


def _submission(evidence: Evidence) -> Iterator[Message]:
    """The client at the ResourceManager, and the first container at its NodeManager."""
    points, app, am = evidence.submit_log.points, evidence.yarn.application.at, evidence.application_master
    yield _at(points.get("application id")), _at(points.get("submitting"))
    yield _at(points.get("submitting")), app.get("SUBMITTED")
    yield app.get("NEW_SAVING"), _at(points.get("submitted"))
    yield app.get("SUBMITTED"), app.get("ACCEPTED")
    yield app.get("ACCEPTED"), app.get("ATTEMPT_ALLOCATED")
    attempt = evidence.yarn.attempt(evidence.attempts.am).at
    if marks := evidence.yarn.containers.get(evidence.attempts.am):
        yield app.get("ACCEPTED"), marks.at.get("ALLOCATED")
    yield _at(am.first), _at(am.registering)
    yield _at(am.registering), attempt.get("RUNNING")
    made = rpc.calls(evidence.container_log(evidence.attempts.am)) if evidence.attempts.am else []
    # the first: with a ResourceManager that came back it registers again
    registers = (call.start_ns for call in made if call.method == "registerApplicationMaster")
    yield next(registers, None), attempt.get("RUNNING")
    running = points.get("running")
    yield app.get("ATTEMPT_RUNNING"), _at(running)
    if running and running.thread and training_job(evidence):  # which has one SparkContext, and asks nothing itself
        asked = [
            call
            for call in evidence.submit_calls
            if call.method == "getApplicationReport" and call.thread == running.thread
        ]
        yield max((call.end_ns for call in asked), default=None), running.at_ns
        # the last answer was that it runs; those before were that it does not yet
        yield max((call.start_ns for call in asked[:-1]), default=None), app.get("ATTEMPT_RUNNING")
    yield _at(am.registering), _at(am.requested)
    yield _at(am.unregistering), attempt.get("FINAL_SAVING")
    yield attempt.get("FINAL_SAVING"), app.get("FINISHING")
    yield app.get("FINISHING"), app.get("FINISHED")


def _containers(evidence: Evidence) -> Iterator[Message]:
    """Between the ResourceManager, the ApplicationMaster and the NodeManagers, of each container."""
    allocating = {am: _allocate_calls(evidence, am) for am in evidence.attempts.ams}
    for container, marks in evidence.yarn.containers.items():
        at, am = marks.at, evidence.am_log_of(container)
        yield at.get("ALLOCATED"), at.get("ACQUIRED")
        yield at.get("ACQUIRED"), at.get("START_REQUEST")
        yield at.get("START_REQUEST"), at.get("LOCALIZING")
        yield at.get("LOCALIZING"), at.get("SCHEDULED")
        yield at.get("SCHEDULED"), at.get("RUNNING")
        yield at.get("RUNNING"), at.get("EXITED")
        if container in am.containers.values():
            yield _at(am.requested), at.get("ALLOCATED")
            yield from _allocation(at, allocating.get(evidence.attempts.am_of(container), []))
        launching = am.launching.get(container)
        yield at.get("ACQUIRED"), _at(launching)
        yield _at(launching), at.get("START_REQUEST")


def _allocate_calls(evidence: Evidence, am: str) -> list[rpc.Call]:
    """By which an ApplicationMaster asked for containers, from its first request on; none where it logs no calls."""
    requested, every = evidence.am_logs[am].requested, rpc.calls(evidence.container_log(am))
    return [call for call in every if call.method == "allocate" and requested and call.end_ns >= requested.at_ns]


def _allocation(at: dict[str, int], calls: list[rpc.Call]) -> Iterator[Message]:
    """The first of these calls came before a container was allocated, and one of them fetched it."""
    acquired_ns = at.get("ACQUIRED")
    if calls and acquired_ns is not None:
        fetched = min(calls, key=lambda call: max(call.start_ns - acquired_ns, acquired_ns - call.end_ns))
        yield calls[0].start_ns, at.get("ALLOCATED")
        yield fetched.start_ns, acquired_ns
        yield acquired_ns, fetched.end_ns


def _executors(evidence: Evidence) -> Iterator[Message]:
    """Between the driver and its executors."""
    driver = evidence.driver_log
    splits = [split for log in evidence.executors.values() for split in log.splits.values()]
    opened: dict[str, int] = {}
    for audit in evidence.audits:
        if audit.command == "open" and audit.at_ns >= evidence.window["exec_ns"]:
            opened.setdefault(audit.path, audit.at_ns)
    for executor, log in evidence.executors.items():
        registered = driver.registered.get(executor)
        yield _at(log.connecting), _at(registered)
        yield _at(registered), _at(log.registered)
        yield _at(driver.points.get("executors told")), _at(log.shutdown)
        if container := evidence.executor_containers.get(executor):
            started = (p.process.start_ns for p in evidence.recorded_in(container) if not p.forked)
            yield from ((_at(log.first), start_ns) for start_ns in started)
    for job in driver.jobs:
        yield job.start_ns, job.end_ns
        for task in job.tasks:
            yield job.start_ns, task.start_ns
            if (own := evidence.executors.get(task.executor)) is not None:
                got, finished = own.got.get(task.id), own.finished.get(task.id)
                yield task.start_ns, got
                yield got, finished
                yield finished, task.end_ns
                if split := own.splits.get(task.id):
                    yield got, split.at_ns
                    yield split.at_ns, finished
                    if training_job(evidence):  # whose driver opens none of them
                        first_ns = min(found.at_ns for found in splits if found.path == split.path)
                        yield first_ns, opened.get(split.path)


def _ranks(evidence: Evidence) -> Iterator[Message]:
    """A rank leaves its result, and tells the driver that it has; the driver waits until each has."""
    driver = evidence.driver_process
    ranks = {process.rank: process for process in trainers(evidence.processes)}
    if driver is None or not training_job(evidence):
        return
    for awaiting in driver.named(names.AWAIT_TRAINERS) if not incomplete(evidence) else ():
        for process in ranks.values():
            yield from ((span.start_ns, awaiting.end_ns) for span in process.named(names.WRITE_DONE_MARKER))
    for heard in driver.instants:
        if heard.name == names.RANK_DONE and (rank := ranks.get(heard.attrs["rank"])):
            for told in rank.named(names.TELL_DRIVER):
                yield told.start_ns, heard.at_ns
                yield heard.at_ns, None if told.truncated else told.end_ns


def _staging(evidence: Evidence) -> Iterator[Message]:
    """Between spark-submit and the NameNode."""
    for line, path, next_line_ns in evidence.submit_log.uploads:
        created = next((a.at_ns for a in evidence.audits if a.command == "create" and a.path == path), None)
        permitted = next((a.at_ns for a in evidence.audits if a.command == "setPermission" and a.path == path), None)
        yield line.at_ns, created
        yield created, permitted
        yield permitted, next_line_ns


def _input(evidence: Evidence) -> Iterator[Message]:
    """A DataNode sends of a file what the NameNode was asked for; of a shared cluster others may have asked before."""
    begun_ns = evidence.window["exec_ns"]
    sent = [t for t in evidence.transfers if t.operation == "HDFS_READ" and t.start_ns >= begun_ns]
    for path, blocks in evidence.blocks.items() if not evidence.external else ():
        asked = [a.at_ns for a in evidence.audits if a.command == "open" and a.path == path and a.at_ns >= begun_ns]
        first_ns = min((transfer.start_ns for transfer in sent if transfer.block in blocks), default=None)
        yield min(asked, default=None), first_ns


def _localisation(evidence: Evidence) -> Iterator[Message]:
    """What was staged is opened by NodeManagers alone, while they localise a container's files."""
    marks = [marks.at for marks in evidence.yarn.containers.values()]
    spells = [(at["LOCALIZING"], at["SCHEDULED"]) for at in marks if {"LOCALIZING", "SCHEDULED"} <= at.keys()]
    staged = {path for _, path, _ in evidence.submit_log.uploads}
    for audit in evidence.audits:
        if audit.command == "open" and audit.path in staged and spells:
            begin_ns, end_ns = min(spells, key=lambda spell: max(spell[0] - audit.at_ns, audit.at_ns - spell[1]))
            yield begin_ns, audit.at_ns
            yield audit.at_ns, end_ns
    for block, (path, _) in staged_blocks(evidence).items():
        opened = [audit.at_ns for audit in evidence.audits if audit.command == "open" and audit.path == path]
        read = [t.start_ns for t in evidence.transfers if t.operation == "HDFS_READ" and t.block == block]
        yield from zip(sorted(opened), sorted(read), strict=False)


def _event_log(evidence: Evidence) -> Iterator[Message]:
    """The driver closes its event log, which is one block, when it says that it does."""
    size, application = reading.size(evidence.path / files.EVENT_LOG), evidence.window["application_id"]
    if application and size is not None and size < BLOCK_BYTES:
        for answer in close_answers(evidence.daemon_log("namenode")):
            if answer.path.rpartition("/")[2].startswith(application):
                yield _at(evidence.driver_log.points.get("event log closing")), answer.at_ns


def messages(evidence: Evidence) -> Iterator[Message]:
    """All of them; a side that was not logged is None."""
    yield from _submission(evidence)
    yield from _containers(evidence)
    yield from _executors(evidence)
    yield from _ranks(evidence)
    yield from _staging(evidence)
    yield from _input(evidence)
    yield from _localisation(evidence)
    yield from _event_log(evidence)


def _reversed(evidence: Evidence) -> Figures:
    early = [
        sent_ns - received_ns - error_of(sent_ns) - error_of(received_ns)
        for sent_ns, received_ns in messages(evidence)
        if sent_ns is not None and received_ns is not None
    ]
    return worst(early, LOG_NS, other_clocks(evidence))


RULES = (
    Rule(
        "order of messages", "What one process tells another is logged there after it was logged here: submission, "
        "registration, containers, executors, tasks, results, ranks, uploads, reads, closes.",
        "logs of both: ns by which an effect comes before its cause", "what a busy machine may hold a thread up, ns",
        NOT_MORE, _reversed,
    ),
)  # fmt: skip
