"""Checks of records and their times: lost spans, nesting, clocks, and the order of messages and collectives."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import NONE, Ints, Numbers, ints, starts_of_runs
from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import DRIVER_SPANS, RANK_SPANS, WORKER_SPANS
from dlobd.evidence.recorded_spans import RecordedSpans
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


@RULES.add("spans-read", "span files: opened spans", "span files: spans", DRIVER_SPANS, RANK_SPANS, WORKER_SPANS)
def _spans(facts: Facts) -> Compared | None:
    """Check that the bundle has every span that a process opened.

    A recorder numbers its spans, so that a lost span leaves a gap. It sums the spans inside summed steps, and each step
    has their number. Detects a span file that is truncated while a rank
    writes it, as in tests/full/ways/test_missing_evidence.py.
    """
    processes = [process for process in facts.evidence.processes if process.spans]
    if not processes:
        return None
    opened = sum(int(np.ptp(process.spans.id)) + 1 + process.left_out[0] for process in processes)
    read = sum(len(process.spans) + process.left_out[1] for process in processes)
    return Compared(opened == read, f"the processes opened {opened:,} spans; the bundle has {read:,}", opened, read)


@RULES.add("nesting", "span files: largest time outside of the parent, ns", "limit, ns")
def _nesting(facts: Facts) -> Compared | None:
    """Check that spans of one thread lie inside their parents and do not overlap. Detects ends before begins."""
    evidence = facts.evidence
    processes = [process for process in evidence.processes if process.spans]
    if not processes:
        return None
    outside_ns = max(0, *(_outside_ns(process.spans) for process in processes))
    message = "all spans lie inside their parents"
    if outside_ns:
        message = f"a span reaches {outside_ns / 1e9:.6f} s beyond its parent, or into the next span"
    aligned = "the evidence has times of several clocks" if evidence.alignment.clocks else ""
    return Compared(outside_ns == 0, message, outside_ns, 0, other_clocks(evidence) or aligned)


def _outside_ns(spans: RecordedSpans) -> int:
    """Return the largest time of a span outside of its parent, before its start, or in the next span."""
    inner = np.flatnonzero(spans.outer != NONE)
    outer = spans.outer[inner]
    whole = (spans.thread[inner] == spans.thread[outer]) & ~(spans.truncated[inner] | spans.truncated[outer])
    inner, outer = inner[whole], outer[whole]
    # calls of the JVM are recorded at their end, so their IDs are not in order
    siblings = np.flatnonzero(~spans.equals("jvm_call", True))
    order = siblings[np.lexsort((spans.id[siblings], spans.parent[siblings], spans.thread[siblings]))]
    before, after = order[:-1], order[1:]
    follow = (spans.thread[before] == spans.thread[after]) & (spans.parent[before] == spans.parent[after])
    before, after = (rows[follow & ~spans.truncated[before]] for rows in (before, after))
    excess_ns = (
        spans.start_ns - spans.end_ns,
        spans.start_ns[outer] - spans.start_ns[inner],
        spans.end_ns[inner] - spans.end_ns[outer],
        spans.end_ns[before] - spans.start_ns[after],
    )
    return max(int(ns.max()) for ns in excess_ns if len(ns))


@RULES.add("collective-order", "span files: largest time before the last entry, ns", "error of the clocks, ns")
def _order(facts: Facts) -> Compared | None:
    """Check that no rank leaves a collective before the last rank has entered it. Detects errors of the clock offsets
    between hosts. No real failure is known; a test edits a span file."""
    evidence = facts.evidence
    early = _early_ns([process.spans for process in trainers(evidence.processes) if process.spans])
    if not len(early):
        return None
    early_ns = max(int(early.max()), 0)
    allowed_ns = 2 * max((clock.error_ns for clock in evidence.alignment.clocks.values()), default=0)
    message = f"no rank leaves any of the {len(early):,} collectives before the last rank enters it"
    if early_ns > allowed_ns:
        message = (
            f"a rank leaves a collective {early_ns / 1e9:.6f} s before the last rank enters it; "
            f"the error of the clock alignment is up to {allowed_ns / 1e9:.6f} s"
        )
    return Compared(early_ns <= allowed_ns, message, early_ns, allowed_ns, other_clocks(evidence))


def _early_ns(processes: Sequence[RecordedSpans]) -> Ints:
    """Return for each collective of several members the time from the first exit until the last entry."""
    numbers, columns = Numbers[str](), []
    for spans in processes:
        of_wait = ints([numbers[rendezvous] if rendezvous else NONE for _, rendezvous in spans.waits])
        rows = np.flatnonzero(of_wait[spans.wait] != NONE)
        times = (spans.start_ns[rows], spans.end_ns[rows], spans.truncated[rows])
        columns.append((of_wait[spans.wait[rows]], spans.call[rows], *times))
    if not columns:
        return np.zeros(0, np.int64)
    rendezvous, call, start_ns, end_ns, truncated = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((call, rendezvous))
    at = starts_of_runs(rendezvous[order], call[order])
    if not len(at):
        return start_ns
    several = (np.diff(np.append(at, len(order))) > 1) & ~np.logical_or.reduceat(truncated[order], at)
    early: Ints = np.maximum.reduceat(start_ns[order], at) - np.minimum.reduceat(end_ns[order], at)
    return early[several]


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
    for awaiting in driver.named(kinds.AWAIT_TRAINERS):
        for process in trainers(evidence.processes):
            for span in process.named(kinds.WRITE_DONE_MARKER):
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
