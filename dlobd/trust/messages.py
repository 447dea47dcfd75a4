"""A check of causality: a message is sent before it is received, by the logs of both processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dlobd import spans as kinds
from dlobd.evidence import rpc
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import LogLine
from dlobd.evidence.recorder import trainers
from dlobd.evidence.timestamp import error_of
from dlobd.trust.base import BUSY_NS, Compared, Facts, Rule, completed, other_clocks, training_job

Message = tuple[str, int | None, int | None]
"""Name, and the times of cause and effect; None if one was not logged."""


def _at(line: LogLine | None) -> int | None:
    return line.at_ns if line else None


def _submission(evidence: Evidence) -> Iterator[Message]:
    """Between the client, the ResourceManager and the ApplicationMaster."""
    points, app, am = evidence.submitter.log.points, evidence.yarn.application.at, evidence.application_master
    attempt = evidence.yarn.attempt(evidence.attempts.am).at
    yield "submission", _at(points.get("submitting")), app.get("SUBMITTED")
    yield "answer to the submission", app.get("NEW_SAVING"), _at(points.get("submitted"))
    yield "acceptance", app.get("SUBMITTED"), app.get("ACCEPTED")
    yield "allocation of the ApplicationMaster", app.get("ACCEPTED"), app.get("ATTEMPT_ALLOCATED")
    yield "registration of the ApplicationMaster", _at(am.registering), attempt.get("RUNNING")
    made = rpc.calls(evidence.container_log(evidence.attempts.am)) if evidence.attempts.am else []
    # the first call: with a ResourceManager that was restarted it registers again
    registers = (call.start_ns for call in made if call.method == "registerApplicationMaster")
    yield "registration call of the ApplicationMaster", next(registers, None), attempt.get("RUNNING")
    yield "state RUNNING", app.get("ATTEMPT_RUNNING"), _at(points.get("running"))
    yield "unregistering of the ApplicationMaster", _at(am.unregistering), attempt.get("FINAL_SAVING")
    yield "end of the application", attempt.get("FINAL_SAVING"), app.get("FINISHED")


def _containers(evidence: Evidence) -> Iterator[Message]:
    """Between the ResourceManager, the ApplicationMaster and the NodeManagers."""
    states = ("ALLOCATED", "ACQUIRED", "START_REQUEST", "LOCALIZING", "SCHEDULED", "RUNNING", "EXITED")
    for container, marks in evidence.yarn.containers.items():
        at, am = marks.at, evidence.am_log_of(container)
        for before, after in pairwise(states):
            yield f"{container}: {before} to {after}", at.get(before), at.get(after)
        if container in am.containers.values():
            yield f"{container}: request", _at(am.requested), at.get("ALLOCATED")
        yield f"{container}: launch", _at(am.launching.get(container)), at.get("START_REQUEST")
        if life := evidence.container_jvm(container):
            yield f"{container}: start of its JVM", at.get("SCHEDULED"), life.start_ns
            yield f"{container}: exit of its JVM", life.exit_ns, at.get("EXITED")


def _executors(evidence: Evidence) -> Iterator[Message]:
    """Between the driver and its executors."""
    driver = evidence.driver.log
    for executor, log in evidence.executors.items():
        registered = driver.registered.get(executor)
        yield f"executor {executor}: registration", _at(log.connecting), _at(registered)
        yield f"executor {executor}: answer to the registration", _at(registered), _at(log.registered)
        yield f"executor {executor}: shutdown", _at(driver.points.get("executors told")), _at(log.shutdown)
    for task in (task for job in driver.jobs for task in job.tasks):
        if (own := evidence.executors.get(task.executor)) is not None:
            got, finished = own.got.get(task.id), own.finished.get(task.id)
            yield f"task {task.id}: start", task.start_ns, got
            yield f"task {task.id}: run", got, finished
            yield f"task {task.id}: result", finished, task.end_ns


def _ranks(evidence: Evidence) -> Iterator[Message]:
    """Between the ranks and the driver, which waits until each rank has left its result."""
    driver = evidence.driver_process
    if driver is None or not training_job(evidence) or not completed(evidence):
        return
    for awaiting in driver.named(kinds.AWAIT_TRAINERS):
        for process in trainers(evidence.processes):
            for span in process.named(kinds.WRITE_DONE_MARKER):
                yield f"{process.process.role} {process.process.index}: result", span.start_ns, awaiting.end_ns


def _staging(evidence: Evidence) -> Iterator[Message]:
    """Between spark-submit and the NameNode."""
    for line, path, next_line_ns in evidence.submitter.log.uploads:
        audits = [audit for audit in evidence.hdfs.audits if audit.path == path]
        created = next((audit.at_ns for audit in audits if audit.command == "create"), None)
        permitted = next((audit.at_ns for audit in audits if audit.command == "setPermission"), None)
        yield f"upload of {path}", line.at_ns, created
        yield f"permissions of {path}", permitted, next_line_ns


def messages(evidence: Evidence) -> Iterator[Message]:
    """Yield all pairs of cause and effect."""
    yield from _submission(evidence)
    yield from _containers(evidence)
    yield from _executors(evidence)
    yield from _ranks(evidence)
    yield from _staging(evidence)


def _order(facts: Facts) -> Compared | None:
    """No message is received before it is sent, by the logs of both processes.

    Detects clock errors, and lines that belong to another container or attempt. Commit 58ebb5f: failed with a
    ResourceManager that was restarted, since its ApplicationMaster registers twice; the first call counts since.
    """
    evidence = facts.evidence
    early = [
        (sent_ns - received_ns - error_of(sent_ns) - error_of(received_ns), name)
        for name, sent_ns, received_ns in messages(evidence)
        if sent_ns is not None and received_ns is not None
    ]
    if not early:
        return None
    early_ns, name = max(early)
    message = f"all {len(early):,} messages arrive after they are sent"
    if early_ns > BUSY_NS:
        message = (
            f"{name}: received {early_ns / 1e9:.3f} s before it was sent; a busy machine explains {BUSY_NS / 1e9:.0f} s"
        )
    return Compared(early_ns <= BUSY_NS, message, max(early_ns, 0), BUSY_NS, other_clocks(evidence))


RULES = (Rule("message-order", ("logs: ns before the cause", "limit on a busy machine, ns"), _order),)
