"""Checks of time: timestamps of several clocks and processes, and the order of messages between processes."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from dlobd import spans
from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import DRIVER_SPANS
from dlobd.evidence.recorder import trainers
from dlobd.evidence.timestamp import error_of
from dlobd.timeline.assemble import Message, at_ns, messages
from dlobd.trust.base import (
    BUSY_NS,
    Compared,
    Facts,
    Rules,
    completed,
    in_applications,
    other_clocks,
    training_job,
    unknown,
)

RULES = Rules()


@RULES.add("log-timestamps", "logs: largest disagreement, ns", "limit on a busy machine, ns")
def _log_timestamps(facts: Facts) -> Compared | None:
    """Check that the two timestamps of each log line differ by the offset between wall clock and monotonic clock.

    Detects a wall clock that was set during the run, and log lines from before a reboot. No real failure is known; a
    test edits a log.
    """
    evidence = facts.evidence
    # one difference per host, and per step of its wall clock
    known = sorted(set(evidence.clock_differences_ns))
    paths = [path for path in sorted((evidence.path / "logs").rglob("*")) if path.is_file()]
    differences_ns = [wall_ns - at_ns for path in paths for at_ns, wall_ns in log4j.stamps(path)]
    if not differences_ns:
        return None
    if not known:
        return unknown("no process read both clocks")
    apart_ns = 0
    for difference_ns in differences_ns:
        index = bisect_left(known, difference_ns)
        nearest = known[max(index - 1, 0) : index + 1]
        apart_ns = max(apart_ns, min(abs(difference_ns - known_ns) for known_ns in nearest))
    message = (
        f"the wall clock and the monotonic clock of a log line disagree by {apart_ns / 1e9:.3f} s; "
        f"the limit on a busy machine is {BUSY_NS / 1e9:.0f} s"
    )
    return Compared(apart_ns <= BUSY_NS, message, apart_ns, BUSY_NS, other_clocks(evidence))


@RULES.add("window", "span files: time outside of the window, ns", "client's clock, ns", DRIVER_SPANS)
def _window(facts: Facts) -> Compared | None:
    """Check that no process starts to record before spark-submit starts, and no client-mode driver records after it
    ends. No real failure is known; a test shifts the end of the window."""
    evidence, window = facts.evidence, facts.evidence.window
    if evidence.topology.by_hand or not evidence.processes:  # a job by hand has the ResourceManager's window
        return None
    outside = [window["exec_ns"] - process.opened_ns for process in evidence.processes]
    driver = evidence.driver_process
    # processes in containers may outlive spark-submit by YARN's clean-up
    if driver and window["exit_code"] == 0 and not window["ended_by"] and evidence.topology.driver_ends_in_window:
        outside.append(driver.last_ns - window["exit_ns"])
    outside_ns = max(*outside, 0)
    message = "all processes recorded only within the time that the client measured"
    if outside_ns:
        message = f"a process recorded {outside_ns / 1e9:.6f} s outside of the time that the client measured"
    return Compared(outside_ns == 0, message, outside_ns, 0, other_clocks(evidence))


# ---- the order of messages


def _submission(evidence: Evidence) -> Iterator[Message]:
    """Yield messages between the client, the ResourceManager and the ApplicationMaster."""
    points, app, am = evidence.submitter.log.points, evidence.yarn.application.at, evidence.application_master
    attempt = evidence.yarn.attempt(evidence.attempts.am).at
    yield "submission", at_ns(points.get("submitting")), app.get("SUBMITTED")
    yield "answer to the submission", app.get("NEW_SAVING"), at_ns(points.get("submitted"))
    yield "acceptance", app.get("SUBMITTED"), app.get("ACCEPTED")
    yield "allocation of the ApplicationMaster", app.get("ACCEPTED"), app.get("ATTEMPT_ALLOCATED")
    yield "registration of the ApplicationMaster", at_ns(am.registering), attempt.get("RUNNING")
    made = evidence.am_calls_of(evidence.attempts.am)
    # only the first call: the ApplicationMaster registers again with a restarted ResourceManager
    registers = (call.start_ns for call in made if call.method == "registerApplicationMaster")
    yield "registration call of the ApplicationMaster", next(registers, None), attempt.get("RUNNING")
    yield "state RUNNING", app.get("ATTEMPT_RUNNING"), at_ns(points.get("running"))
    yield "unregistering of the ApplicationMaster", at_ns(am.unregistering), attempt.get("FINAL_SAVING")
    yield "end of the application", attempt.get("FINAL_SAVING"), app.get("FINISHED")


def _containers(evidence: Evidence) -> Iterator[Message]:
    """Yield messages between the ResourceManager, the ApplicationMaster and the NodeManagers."""
    states = ("ALLOCATED", "ACQUIRED", "START_REQUEST", "LOCALIZING", "SCHEDULED", "RUNNING", "EXITED")
    for container, marks in evidence.yarn.containers.items():
        at, am = marks.at, evidence.am_log_of(container)
        for before, after in pairwise(states):
            yield f"{container}: {before} to {after}", at.get(before), at.get(after)
        if container in am.containers.values():
            yield f"{container}: request", at_ns(am.requested), at.get("ALLOCATED")
        yield f"{container}: launch", at_ns(am.launching.get(container)), at.get("START_REQUEST")
        if life := evidence.container_jvm(container):
            yield f"{container}: start of its JVM", at.get("SCHEDULED"), life.start_ns
            yield f"{container}: exit of its JVM", life.exit_ns, at.get("EXITED")


def _executors(evidence: Evidence) -> Iterator[Message]:
    """Yield messages between the driver and its executors."""
    driver = evidence.driver.log
    yield from messages(evidence)
    for executor, log in evidence.executors.items():
        if executor not in driver.removed:  # an earlier message shut it down
            yield f"executor {executor}: shutdown", at_ns(driver.points.get("executors told")), at_ns(log.shutdown)
        for task in log.got.keys() & log.finished.keys():
            yield f"task {task}: run", log.got[task], log.finished[task]


def _ranks(evidence: Evidence) -> Iterator[Message]:
    """Yield messages from the ranks to the driver, which waits for the results of all ranks."""
    driver = evidence.driver_process
    if driver is None or not training_job(evidence) or not completed(evidence):
        return
    for awaiting in driver.named(spans.AWAIT_TRAINERS):
        for process in trainers(evidence.processes):
            for span in process.named(spans.WRITE_DONE_MARKER):
                yield f"{process.process.role} {process.process.index}: result", span.start_ns, awaiting.end_ns


def _staging(evidence: Evidence) -> Iterator[Message]:
    """Yield messages between spark-submit and the NameNode."""
    for line, path, next_line_ns in evidence.submitter.log.uploads:
        audits = [audit for audit in evidence.hdfs.audits if audit.path == path]
        created = next((audit.at_ns for audit in audits if audit.command == "create"), None)
        permitted = next((audit.at_ns for audit in audits if audit.command == "setPermission"), None)
        yield f"upload of {path}", line.at_ns, created
        yield f"permissions of {path}", permitted, next_line_ns


@RULES.add("message-order", "logs: largest time received before sent, ns", "limit on a busy machine, ns")
@in_applications
def _message_order(facts: Facts) -> Compared | None:
    """Check that no message is received before it is sent, according to the logs of both processes.

    Detects clock errors, and lines that belong to another container or attempt. Failed in 58ebb5f with a restarted
    ResourceManager, where the ApplicationMaster registers twice.
    """
    evidence = facts.evidence
    early = [
        (sent_ns - received_ns - error_of(sent_ns) - error_of(received_ns), name)
        for messages in (_submission, _containers, _executors, _ranks, _staging)
        for name, sent_ns, received_ns in messages(evidence)
        if sent_ns is not None and received_ns is not None
    ]
    if not early:
        return None
    early_ns, name = max(early)
    message = f"all {len(early):,} messages arrive after they are sent"
    if early_ns > BUSY_NS:
        message = (
            f"{name}: received {early_ns / 1e9:.3f} s before it was sent; "
            f"the limit on a busy machine is {BUSY_NS / 1e9:.0f} s"
        )
    return Compared(early_ns <= BUSY_NS, message, max(early_ns, 0), BUSY_NS, other_clocks(evidence))
