"""Builds the driver's lane: its Python, and the JVM's work in calls from Python.

In client mode it begins with spark-submit's JVM, the parent of the Python process. In cluster mode spark-submit has a
lane of its own that waits for the application, and the driver runs in the ApplicationMaster's container.
"""

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from dlobd import spans as kinds
from dlobd.evidence import rpc
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.evidence.spark import Job, Task
from dlobd.evidence.topology import APPLICATION_LANE, DRIVER_LANE, SUBMITTER_LANE, Placement
from dlobd.layers import SPARK
from dlobd.schema import Process
from dlobd.spans import Details
from dlobd.timeline import jvm
from dlobd.timeline.application import RM_LOG
from dlobd.timeline.builder import OWN_MARK, LaneBuilder, Part, Resolve, of_threads, place_calls, poll_ns
from dlobd.timeline.executor import DRIVER_LOG, EXECUTOR_LOG, add_agents, lane_of, lane_of_task
from dlobd.timeline.ranks import Rank, last_executor
from dlobd.timeline.tasks import WaitingThreads, critical
from dlobd.tracing.clock import tick_ns

SUBMIT_LOG = "spark-submit log"
JVM_LOG = "driver JVM log"
CLIENT = "client clock"
AUDIT_LOG = "NN audit log"

HeldNs = Callable[[RecordedSpan], int | None]


def build(evidence: Evidence, host: str, ranks: Sequence[Rank], resolve: Resolve, held_ns: HeldNs) -> list[Part]:
    """Return the spans of the driver, and in cluster mode also those of spark-submit's own lane."""
    driver = LaneBuilder(DRIVER_LANE, Process(host, "driver", 0, evidence.window["pid"]))
    python = evidence.driver_process
    threads = of_threads(DRIVER_LANE, python, python.spans, resolve) if python else []
    waiting = WaitingThreads(evidence, python) if python and evidence.topology.user_script else None
    threads += _jobs_of_threads(evidence, python, waiting) if python and waiting else []
    begun_ns = python.process.start_ns if python else None
    if evidence.topology.driver_ends_in_window:
        _add_start(driver, evidence, begun_ns)
    _add_driver(driver, evidence, ranks, resolve, held_ns, waiting)
    if evidence.topology.by_hand:  # the window begins after the start of spark-submit, and ends before its end
        return driver.parts
    if evidence.topology.driver_in_container:
        submitter = LaneBuilder(SUBMITTER_LANE, Process(host, SUBMITTER_LANE, 0, evidence.window["pid"]))
        _add_submitter(submitter, evidence)
        return [*submitter.parts, *driver.parts, *threads]
    for application in evidence.applications:
        _add_submission(driver, application)
    _add_exit(driver, evidence)
    main = [call for call in evidence.submitter.calls if call.thread == "main" and call.start_ns < (begun_ns or 0)]
    place_calls(driver, main, JVM_LOG)
    return [*driver.parts, *threads]


def _add_start(lane: LaneBuilder, evidence: Evidence, next_ns: int | None) -> None:
    """Add the start of the SparkSubmit JVM, and its time until its child starts at `next_ns`."""
    window, life = evidence.window, evidence.submitter.life
    jvm_ns = life.start_ns if life else None
    lane.add(kinds.SPARK_SUBMIT_SCRIPT, window["started_ns"], jvm_ns, f"{CLIENT}, {JVM_LOG}")
    until_ns, resolution_ns = (next_ns, tick_ns()) if next_ns else (window["exit_ns"], 1)
    lane.add(kinds.SUBMIT_JVM_STARTS, jvm_ns, until_ns, f"{JVM_LOG}, /proc", resolution_ns=resolution_ns)
    jvm.add_boot(lane, life, evidence.log4j(), None, JVM_LOG, SUBMIT_LOG)
    jvm.add_pauses(lane, life, jvm_ns, next_ns, JVM_LOG)


def _add_driver(
    lane: LaneBuilder,
    evidence: Evidence,
    ranks: Sequence[Rank],
    resolve: Resolve,
    held_ns: HeldNs,
    waiting: WaitingThreads | None,
) -> None:
    python = evidence.driver_process
    if python is None:
        return
    first_ns = python.spans[0].start_ns if python.spans else python.last_ns
    start_ns = python.process.start_ns
    lane.add(kinds.DRIVER_PYTHON_STARTS, start_ns, first_ns, f"/proc, {OWN_MARK}", resolution_ns=tick_ns())
    lane.add_recorded(python, resolve=resolve)
    add_agents(lambda process, at_ns: lane, evidence.recorded_in(python.path.parent.name), ranks)
    for application in evidence.applications:
        _add_context(lane, application, python, last_executor(application, ranks))
    _add_jobs(lane, evidence, python, held_ns, waiting)
    for application in evidence.applications:
        _add_stop(lane, application, python)
        _add_jvm(lane, application)
    for wait in python.named(kinds.AWAIT_TRAINERS):
        lane.add(kinds.LAST_NOTICE_HEARD, last_notice_ns(python, wait), wait.end_ns, OWN_MARK)


def last_notice_ns(python: RecordedProcess | None, wait: RecordedSpan) -> int | None:
    """Return the time of the last rank's done notice inside a wait for trainers; None without one."""
    notices = [i.at_ns for i in python.instants if i.name == kinds.RANK_DONE] if python else []
    return max((at_ns for at_ns in notices if wait.start_ns <= at_ns < wait.end_ns), default=None)


def _add_jvm(lane: LaneBuilder, evidence: Evidence) -> None:
    context = evidence.driver.log.points.get("JVM SparkContext")
    if context is None or not context.thread:
        return
    lines = [line for line in evidence.driver.lines if line.thread == context.thread and line.at_ns >= context.at_ns]
    jvm.add_phases(lane, lines, jvm.DRIVER, DRIVER_LOG)
    place_calls(lane, rpc.calls(lines), DRIVER_LOG)
    jvm.add_pauses(lane, evidence.driver.life, context.at_ns, evidence.driver.log.at("submitting"), JVM_LOG)


def _add_exit(lane: LaneBuilder, evidence: Evidence) -> None:
    python, life = evidence.driver_process, evidence.driver.life
    window_end_ns = evidence.window["exit_ns"]
    if python is None:
        return
    last_ns = max((span.end_ns for span in python.spans), default=python.last_ns)
    exit_ns = life.exit_ns if life else None
    lane.add(kinds.DRIVER_PYTHON_EXITS, last_ns, exit_ns or window_end_ns, f"{OWN_MARK}, {JVM_LOG}")
    lane.add(kinds.JVM_PROCESS_EXITS, exit_ns, window_end_ns, f"{JVM_LOG}, {CLIENT}")


def _add_submitter(lane: LaneBuilder, evidence: Evidence) -> None:
    """Add spark-submit in cluster mode: staging, submission, and a poll of the application once a second."""
    log, life, window = evidence.submitter.log, evidence.submitter.life, evidence.window
    _add_start(lane, evidence, log.at("application id"))
    lane.add(kinds.PREPARE_SUBMISSION, log.at("application id"), log.at("submitting"), SUBMIT_LOG)
    _add_submission(lane, evidence)
    exit_ns = (life.exit_ns if life else None) or window["exit_ns"]
    # a client may see FINISHED before the ResourceManager logs it
    finished_ns = evidence.yarn.application.at.get("FINISHED")
    released_ns = None if finished_ns is None else min(finished_ns, exit_ns)
    more: Details = {"waits_for": (APPLICATION_LANE,), "released_ns": released_ns, **_report_poll(evidence, exit_ns)}
    lane.log(kinds.WAIT_FOR_APPLICATION, log.at("submitted"), exit_ns, f"{SUBMIT_LOG}, {JVM_LOG}", **more)
    lane.add(kinds.JVM_PROCESS_EXITS, exit_ns, window["exit_ns"], f"{JVM_LOG}, {CLIENT}")
    jvm.add_phases(lane, evidence.submitter.lines, jvm.SUBMISSION, SUBMIT_LOG)
    place_calls(lane, [call for call in evidence.submitter.calls if call.thread == "main"], SUBMIT_LOG)


def _report_poll(evidence: Evidence, end_ns: int) -> Details:
    """Return the application-report poll of a wait until `end_ns` as fields of a span; two successive calls show its
    period."""
    read_ns = poll_ns(evidence.submitter.calls, "getApplicationReport", end_ns)
    return kinds.REPORT_POLL.fields() if read_ns is None else kinds.REPORT_POLL_READ.fields(read_ns)


def _add_submission(lane: LaneBuilder, evidence: Evidence) -> None:
    log = evidence.submitter.log
    permitted = {call.path: call.end_ns for call in evidence.submitter.calls if call.method == "setPermission"}
    for line, path, next_line_ns in log.uploads:
        attrs = {"purpose": "staging", "path": path}
        if path in permitted:
            lane.log(kinds.UPLOAD_TO_STAGING, line.at_ns, permitted[path], SUBMIT_LOG, attrs=attrs)
            continue
        # Spark sets the file's permission after the copy: the NameNode's record of that call is the end of the upload
        done = next((a.at_ns for a in evidence.hdfs.audits if a.command == "setPermission" and a.path == path), None)
        source = f"{SUBMIT_LOG}, {AUDIT_LOG if done else SUBMIT_LOG}"
        lane.log(kinds.WRITE_STAGING, line.at_ns, done or next_line_ns, source, attrs=attrs)
    lane.log(kinds.SUBMIT_RPC, log.at("submitting"), log.at("submitted"), SUBMIT_LOG)


def _add_context(lane: LaneBuilder, evidence: Evidence, python: RecordedProcess, last: str | None) -> None:
    """Add the parts of `SparkContext(...)`: the JVM's start, and the waits for the ApplicationMaster and executors."""
    context = next((span for span in python.named(kinds.SPARK_CONTEXT) if evidence.has(span.end_ns)), None)
    if context is None:
        return
    log = evidence.driver.log
    waiting_ns = _add_manager(lane, evidence, context)
    registered = log.registered.get(last) if last else None
    ready_ns = log.at("ready") or context.end_ns
    # after maxRegisteredResourcesWaitingTime Spark continues: a later registration released nothing
    released_ns = registered.at_ns if registered and registered.at_ns <= ready_ns else None
    waits_for = (lane_of(last),) if last else ()
    cause = kinds.EXECUTORS_POLL.fields()
    if (ready := log.points.get("ready")) and "maxRegisteredResourcesWaitingTime" in ready.message:
        cause = kinds.EXECUTORS_TIMEOUT.fields(ready_ns - (released_ns or waiting_ns or ready_ns))
    more: Details = {"waits_for": waits_for, "released_ns": released_ns, **cause}
    lane.log(kinds.WAIT_FOR_EXECUTORS, waiting_ns, ready_ns, DRIVER_LOG, **more)


def _add_manager(lane: LaneBuilder, evidence: Evidence, context: RecordedSpan) -> int | None:
    """Add the registration of the driver with the manager of its executors. Returns the end of the registration."""
    log, placement = evidence.driver.log, evidence.topology.placement
    if placement is Placement.YARN_CLUSTER:  # the driver is the ApplicationMaster
        registered_ns = evidence.yarn.attempt(evidence.attempts.am).at.get("RUNNING")
        registering, source = evidence.application_master.registering, f"{DRIVER_LOG}, {RM_LOG}"
        lane.log(kinds.SPARK_ENV_STARTS, log.at("JVM SparkContext"), registered_ns, source)
        lane.log(kinds.REGISTER_APPLICATION, registering.at_ns if registering else None, registered_ns, source)
        return registered_ns
    if placement is not Placement.YARN_CLIENT:  # Spark's standalone Master
        lane.log(kinds.SPARK_ENV_STARTS, log.at("JVM SparkContext"), log.at("connecting"), DRIVER_LOG)
        lane.log(kinds.REGISTER_WITH_MASTER, log.at("connecting"), log.at("connected"), DRIVER_LOG)
        return log.at("connected")
    lane.log(kinds.SPARK_ENV_STARTS, log.at("JVM SparkContext"), log.at("application id"), DRIVER_LOG)
    lane.log(kinds.PREPARE_SUBMISSION, log.at("application id"), log.at("submitting"), DRIVER_LOG)
    running_ns = log.at("running")
    until_ns, released_ns = running_ns or context.end_ns, evidence.yarn.application.at.get("ATTEMPT_RUNNING")
    waits_for, poll = (evidence.application_lane,), _report_poll(evidence, until_ns)
    more: Details = {"waits_for": waits_for, "released_ns": released_ns, **poll}
    lane.log(kinds.WAIT_FOR_AM, log.at("submitted"), until_ns, DRIVER_LOG, **more)
    return running_ns


def _add_jobs(
    lane: LaneBuilder, evidence: Evidence, python: RecordedProcess, held_ns: HeldNs, waiting: WaitingThreads | None
) -> None:
    """Add Spark jobs. A job inside a recorded wait belongs to it: only its submission is the driver's own time."""
    spans = [span for span in python.spans if not span.thread]
    waits = [span for span in spans if span.wait and span.kind is not kinds.WAIT_FOR_STREAM]
    elsewhere = {id(job) for job, _ in waiting.elsewhere} if waiting else ()
    free: list[Job] = []
    for wait in waits:
        _add_end_of_feed(lane, evidence, wait, held_ns(wait))
        if wait.layer == SPARK and not _jobs_inside(evidence.driver.log.jobs, wait):
            _add_unlogged_job(lane, evidence, wait)
    for job in evidence.driver.log.jobs:
        if id(job) in elsewhere:
            continue  # this lane does not wait for it
        around = next((w for w in waits if w.start_ns <= job.start_ns < w.end_ns), None)
        if around is None:
            free.append(job)
            continue
        lane.log(kinds.SUBMIT_JOB, around.start_ns, job.start_ns, f"{OWN_MARK}, {DRIVER_LOG}", detail=job.name)
    if waiting is None:
        within = [([job], evidence.window["exit_ns"]) for job in free]
    else:
        alone = {id(job) for job in free}
        waited = ((waiting.jobs_of(call), call.end_ns) for call in waiting.calls[""])
        within = [([job for job in jobs if id(job) in alone], end_ns) for jobs, end_ns in waited]
    for jobs, end_ns in within:
        _add_waited(lane, evidence, jobs, end_ns)


def _jobs_of_threads(evidence: Evidence, python: RecordedProcess, waiting: WaitingThreads) -> list[Part]:
    """Return the jobs for which other threads of the driver's Python wait, in the lanes of these threads."""
    found = []
    for thread, calls in waiting.calls.items():
        lane = LaneBuilder(f"{DRIVER_LANE}/{thread}", python.process)
        for call in calls if thread else ():
            _add_waited(lane, evidence, waiting.jobs_of(call), call.end_ns)
        found += lane.parts
    return found


def _jobs_inside(jobs: Iterable[Job], span: RecordedSpan) -> list[Job]:
    """Return the jobs that were submitted inside a span."""
    return [job for job in jobs if span.start_ns <= job.start_ns < span.end_ns]


def _add_unlogged_job(lane: LaneBuilder, evidence: Evidence, wait: RecordedSpan) -> None:
    """Add the submission of a job that the driver's log lacks. It ends at the first task of an executor's log that the
    driver's log lacks."""
    logged = {task.id for task in evidence.driver.log.tasks}
    got = [at_ns for log in evidence.executors.values() for tid, at_ns in log.got.items() if tid not in logged]
    first_ns = min((at_ns for at_ns in got if wait.start_ns <= at_ns < wait.end_ns), default=None)
    lane.log(kinds.SUBMIT_JOB, wait.start_ns, first_ns, f"{OWN_MARK}, {EXECUTOR_LOG}", detail=wait.name)


def last_task(evidence: Evidence, wait: RecordedSpan) -> tuple[Job, Task] | None:
    """Return the last completed task of the jobs that were submitted inside a wait; None without one."""
    ended = [
        (task.end_ns, task.id, job, task)
        for job in _jobs_inside(evidence.driver.log.jobs, wait)
        for task in job.tasks
        if task.end_ns is not None and task.end_ns <= wait.end_ns
    ]
    return max(ended)[2:] if ended else None


def _add_end_of_feed(lane: LaneBuilder, evidence: Evidence, wait: RecordedSpan, held_ns: int | None) -> None:
    """Add the end of a feed's job after the trainers stop delaying it at `held_ns`; nothing for other waits."""
    if held_ns is None or (last := last_task(evidence, wait)) is None:
        return
    job, task = last
    assert task.end_ns is not None
    begin_ns, waits_for = min(held_ns, task.end_ns), (lane_of_task(evidence, task),)
    lane.log(kinds.WAIT_FOR_TASKS, begin_ns, task.end_ns, DRIVER_LOG, detail=job.name, waits_for=waits_for)
    lane.log(kinds.END_JOB, max(held_ns, task.end_ns), wait.end_ns, f"{DRIVER_LOG}, {OWN_MARK}", detail=job.name)


def _add_waited(lane: LaneBuilder, evidence: Evidence, jobs: Sequence[Job], end_ns: int) -> None:
    free_ns = 0
    for job in jobs:
        if job.end_ns is not None and job.start_ns >= free_ns:
            free_ns = min(job.end_ns, end_ns)
            lane.log(kinds.JOB, job.start_ns, free_ns, DRIVER_LOG, detail=job.name)
    finished = {name: log.finished for name, log in evidence.executors.items()}
    log = evidence.driver.log
    registered = {executor: line.at_ns for executor, line in log.registered.items()}
    for link in critical(jobs, finished, end_ns, log.gone, registered):
        more: Details = {"detail": link.job}
        if link.task:
            begun = lane_of(link.task.executor)
            more["waits_for"] = (begun if link.starts else lane_of_task(evidence, link.task),)
        kind = kinds.WAIT_FOR_TASKS if link.task else kinds.LOST_TASK
        lane.log(kind, link.start_ns, link.end_ns, f"{DRIVER_LOG}, {EXECUTOR_LOG}", **more)


def _add_stop(lane: LaneBuilder, evidence: Evidence, python: RecordedProcess) -> None:
    """Add the close of the event log inside `SparkContext.stop`: its last write and its rename are HDFS's time."""
    closing = evidence.driver.log.points.get("event log closing")
    stop = next((span for span in python.named(kinds.SPARK_CONTEXT_STOP) if evidence.has(span.end_ns)), None)
    if closing is None or stop is None or evidence.driver.log.has_local_events:
        return
    application = str(evidence.window["application_id"])
    path = urlsplit(evidence.driver.log.event_log or f"/spark-events/{application}").path.removesuffix(".inprogress")
    attrs = {"purpose": "event log", "path": path}
    made = [call for call in evidence.driver.calls if call.start_ns > closing.at_ns]
    last = next((call for call in made if call.method.startswith("rename") and call.thread == closing.thread), None)
    if last is not None:
        lane.log(kinds.STOP_EVENT_LOG, closing.at_ns, last.end_ns, DRIVER_LOG, attrs=attrs)
        return
    renamed = [a.at_ns for a in evidence.hdfs.audits if a.command == "rename" and application in a.path]
    after_ns = next((at_ns for at_ns in renamed if closing.at_ns < at_ns <= stop.end_ns), None)
    lane.log(kinds.CLOSE_EVENT_LOG, closing.at_ns, after_ns, f"{DRIVER_LOG}, {AUDIT_LOG}", attrs=attrs)
