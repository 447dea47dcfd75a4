"""The main lane of a client-mode job: spark-submit's JVM, the driver's Python, and the JVM's work under its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlobd.clock import tick_ns
from dlobd.importers.application_lane import LANE as APPLICATION
from dlobd.importers.builder import OWN_MARK, LaneBuilder
from dlobd.importers.evidence import Evidence
from dlobd.importers.executor_lane import DRIVER_LOG, EXECUTOR_LOG, lane_of
from dlobd.importers.log4j import RESOLUTION_NS
from dlobd.importers.recorder import RecordedProcess, RecordedSpan
from dlobd.importers.spark import Job
from dlobd.schema import Process, Span

LANE = "driver"
JVM_LOG = "driver JVM log"
CLIENT = "client clock"
AUDIT_LOG = "NN audit log"
REPORT_POLL = "Spark's application report poll (spark.yarn.report.interval, 1 s)"
REPORT_POLL_NS = 1_000_000_000
READY_POLL = "Spark's wait for registered executors (0.1 s poll)"
READY_POLL_NS = 100_000_000

Resolve = Callable[[RecordedSpan, dict[str, Any]], dict[str, Any]]


def build(evidence: Evidence, host: str, last_executor: str | None, resolve: Resolve) -> list[Span]:
    """The driver's spans.

    Args:
        last_executor: the executor that registered last, if any did.
        resolve: names the lanes of recorded waits.
    """
    window = evidence.window
    python = evidence.driver_process
    life = evidence.driver_jvm
    lane = LaneBuilder(LANE, Process(host, "driver", 0, window["pid"]))
    jvm_ns = life.start_ns if life else None
    python_ns = python.process.start_ns if python else None
    lane.add("spark", "spark-submit script", window["started_ns"], jvm_ns, f"{CLIENT}, {JVM_LOG}")
    lane.add(
        "spark", "SparkSubmit JVM starts", jvm_ns, python_ns or window["exit_ns"], f"{JVM_LOG}, /proc",
        resolution_ns=tick_ns() if python_ns else 1,
    )  # fmt: skip
    if python is None:
        return lane.spans
    first_ns = python.spans[0].start_ns if python.spans else python.last_ns
    lane.add("spark", "driver Python starts", python_ns, first_ns, f"/proc, {OWN_MARK}", resolution_ns=tick_ns())
    lane.add_recorded(python, resolve=resolve)
    last_ns = max((span.end_ns for span in python.spans), default=python.last_ns)
    exit_ns = life.exit_ns if life else None
    lane.add("spark", "driver Python exits, JVM stops", last_ns, exit_ns or window["exit_ns"], f"{OWN_MARK}, {JVM_LOG}")
    lane.add("spark", "JVM process exits", exit_ns, window["exit_ns"], f"{JVM_LOG}, {CLIENT}")
    _add_context(lane, evidence, python, last_executor)
    _add_jobs(lane, evidence, python)
    _add_stop(lane, evidence, python)
    return lane.spans


def _add_context(lane: LaneBuilder, evidence: Evidence, python: RecordedProcess, last_executor: str | None) -> None:
    """Inside `SparkContext(...)`: staging, submit RPC, waiting for the ApplicationMaster and for the executors."""
    context = next(iter(python.named("SparkContext")), None)
    if context is None:
        return
    log = evidence.driver_log

    def at(name: str) -> int | None:
        return log.points[name].at_ns if name in log.points else None

    for name, opens, closes in (
        ("SparkEnv and UI start", "JVM SparkContext", "application id"),
        ("prepare submission", "application id", "submitting"),
    ):
        lane.add("spark", name, at(opens), at(closes), DRIVER_LOG, resolution_ns=RESOLUTION_NS)
    for line, path, next_line_ns in log.uploads:
        # Spark sets the file's permission once it is copied: the NameNode's record of that is the upload's end
        done = next((a.at_ns for a in evidence.audits if a.command == "setPermission" and a.path == path), None)
        lane.add(
            "hdfs", "write staging", line.at_ns, done or next_line_ns,
            f"{DRIVER_LOG}, {AUDIT_LOG if done else DRIVER_LOG}", resolution_ns=RESOLUTION_NS,
            attrs={"purpose": "staging", "path": path},
        )  # fmt: skip
    lane.add("yarn", "submit RPC", at("submitting"), at("submitted"), DRIVER_LOG, resolution_ns=RESOLUTION_NS)
    lane.add(
        "spark", "wait for the ApplicationMaster", at("submitted"), at("running") or context.end_ns, DRIVER_LOG,
        resolution_ns=RESOLUTION_NS, waits_for=(APPLICATION,),
        released_ns=evidence.yarn.application.at.get("ATTEMPT_RUNNING"),
        cause=REPORT_POLL, cause_period_ns=REPORT_POLL_NS,
    )  # fmt: skip
    registered = log.registered.get(last_executor) if last_executor else None
    lane.add(
        "spark", "wait for executors", at("running"), at("ready") or context.end_ns, DRIVER_LOG,
        resolution_ns=RESOLUTION_NS, waits_for=(lane_of(last_executor),) if last_executor else (),
        released_ns=registered.at_ns if registered else None, cause=READY_POLL, cause_period_ns=READY_POLL_NS,
    )  # fmt: skip


def _add_jobs(lane: LaneBuilder, evidence: Evidence, python: RecordedProcess) -> None:
    """Spark jobs. One inside a recorded wait was submitted for that wait: only its submission is the driver's own."""
    waits = [span for span in python.spans if span.wait and not span.thread]
    for job in evidence.driver_log.jobs:
        around = next((w for w in waits if w.start_ns <= job.start_ns < w.end_ns), None)
        if around is not None:
            lane.add(
                "spark", f"submit job {job.name}", around.start_ns, job.start_ns, f"{OWN_MARK}, {DRIVER_LOG}",
                resolution_ns=RESOLUTION_NS,
            )  # fmt: skip
            continue
        lane.add("spark", f"job {job.name}", job.start_ns, job.end_ns, DRIVER_LOG, resolution_ns=RESOLUTION_NS)
        last = _last_task(evidence, job)
        if last:
            lane.add(
                "spark", f"wait for tasks of {job.name}", last[1], last[2], f"{DRIVER_LOG}, {EXECUTOR_LOG}",
                resolution_ns=RESOLUTION_NS, waits_for=(lane_of(last[0]),),
            )  # fmt: skip


def _last_task(evidence: Evidence, job: Job) -> tuple[str, int, int] | None:
    """Executor, start and end of the task that ended last."""
    ended = [
        (evidence.executors[task.executor].finished[task.id], task.executor, task.start_ns)
        for task in job.tasks
        if task.executor in evidence.executors and task.id in evidence.executors[task.executor].finished
    ]
    if not ended:
        return None
    end_ns, executor, start_ns = max(ended)
    return executor, start_ns, end_ns


def _add_stop(lane: LaneBuilder, evidence: Evidence, python: RecordedProcess) -> None:
    """Inside `SparkContext.stop`: the event log's last bytes and its rename are HDFS's time."""
    closing = evidence.driver_log.points.get("event log closing")
    stop = next(iter(python.named("SparkContext.stop")), None)
    if closing is None or stop is None:
        return
    renamed = [a.at_ns for a in evidence.audits if a.command == "rename" and a.path.startswith("/spark-events/")]
    after = [at_ns for at_ns in renamed if closing.at_ns < at_ns <= stop.end_ns]
    lane.add(
        "hdfs", "close event log", closing.at_ns, after[0] if after else None, f"{DRIVER_LOG}, {AUDIT_LOG}",
        resolution_ns=RESOLUTION_NS,
        attrs={"purpose": "event log", "path": f"/spark-events/{evidence.window['application_id']}"},
    )  # fmt: skip
