"""Reads the logs of the driver, the ApplicationMaster and the executors, with %nano timestamps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from dlobd.bundle.files import executor_key
from dlobd.evidence.log4j import LogLine

_STARTING = re.compile(r"Starting task (\d+)\.\d+ in stage (\d+)\.\d+ \(TID (\d+)\) \((\S+?),\s*executor (\S+?),")
_RUNNING = re.compile(r"Running task \S+ in stage \S+ \(TID (\d+)\)$")
_READING = re.compile(r"Started reading broadcast variable (\d+) ")
_READ = re.compile(r"Block broadcast_(\d+) stored as values")
_RUNNER = re.compile(r"Python daemon module in PySpark is set to ")
_PYTHON = re.compile(r"Starting Python task execution - task \S+ in stage \S+ \(TID (\d+)\)$")
_TIMES = re.compile(r"Times: total = -?\d+, boot = -?\d+, init = -?\d+, finish = (\d+)\b")
_OF_TASK = re.compile(r"\(TID (\d+)\)$")
_GOT = re.compile(r"Got assigned task (\d+)$")
_ENDED = re.compile(
    r"(?:Finished task|Exception in task|Executor (?:interrupted and )?killed task) \S+ in stage \S+ \(TID (\d+)\)"
)
_NOT_DONE = re.compile(r"Lost task \S+ in stage \S+ \(TID (\d+)\) .*?executor [^\s)]+?\)?: (ExecutorLost|TaskKilled)?")
_DONE = re.compile(r"Finished task \S+ in stage \S+ \(TID (\d+)\) in \d+ ms")
_KILLING = re.compile(r"Killing attempt \d+ for task \S+ in stage \S+ \(TID (\d+)\)")
_JOB = re.compile(r"Got (?:map stage )?job (\d+) \((.*)\) with")
_JOB_END = re.compile(r"Job (\d+) (finished|failed)")
_STAGE = re.compile(r"Submitting (?:ShuffleMap|Result)Stage (\d+) ")
_TASK_SET = re.compile(r"Adding task set (\d+)\.\d+ with ")
_REGISTERED = re.compile(r"Registered executor .* with ID (\S+?),")
_LAUNCHING = re.compile(r"Launching container (container_\S+) on host (\S+) for executor with ID (\S+) ")
_GONE = re.compile(r"Lost executor (\S+) on ")
_REMOVED = re.compile(r"Executor (\S+) on \S+ (?:killed by driver|is decommissioned)")
_LOST = re.compile(r"Lost executor (\S+) on (\S+): .*(container_\S+) on host.*Container released on a \*lost\* node")
_UPLOAD = re.compile(r"Uploading resource .+? -> (?:hdfs://[^/]+)?(/.*)")
_EVENTS = re.compile(r"Logging events to (\S+)")
_USER_EXIT = re.compile(r"User application exited with status (\d+)$")
ANNOUNCED = re.compile(
    r"(?:Application ID is assigned: |cluster with app ID |Logging events to \S*?/(?:eventlog_v2_)?)"
    r"(application_\d+_\d+|app-\d{14}-\d{4}|local-\d{13})"
)
"""Log lines with the ID of a new application; a SparkContext without a cluster has an ID only in its event log."""
_SPLIT = re.compile(r"Task \(TID (\d+)\) input split: hdfs://[^/]+(/.*):(\d+)\+(\d+)")


Loss = Literal["failed", "killed", "executor lost"]
_LOSSES: dict[str | None, Loss] = {"ExecutorLost": "executor lost", "TaskKilled": "killed"}


@dataclass(slots=True)
class Task:
    """One attempt of a task in the driver's log. `index` is the number of its partition in the stage."""

    id: int
    stage: int
    executor: str
    start_ns: int
    end_ns: int | None = None  # time at which the driver had its result
    index: int = 0
    loss: Loss | None = None  # the reason why its result was not used, if the driver's log has one
    lost_ns: int | None = None  # time at which the driver noticed its end; it may stop before it notices


@dataclass(slots=True)
class Job:
    """One Spark job with its tasks."""

    id: int
    name: str
    start_ns: int
    end_ns: int | None = None
    stages: dict[int, list[int]] = field(default_factory=dict)  # stage ID -> its start, and time of its task set
    tasks: list[Task] = field(default_factory=list)
    thread: str = ""  # of the driver's JVM, which waited for the end

    @property
    def last_ns(self) -> int:
        """The last known time of the job: map-stage jobs have no end in the log."""
        return self.end_ns or max((task.end_ns or task.start_ns for task in self.tasks), default=self.start_ns)


@dataclass(frozen=True, slots=True)
class LostExecutor:
    """An executor that was lost with its node."""

    at_ns: int
    container: str
    host: str


@dataclass(slots=True)
class DriverLog:
    """Named points of the driver's JVM, its jobs, and the uploads to its staging directory."""

    points: dict[str, LogLine] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    registered: dict[str, LogLine] = field(default_factory=dict)
    uploads: list[tuple[LogLine, str, int]] = field(default_factory=list)  # first line, HDFS path, next line's time
    errors: list[str] = field(default_factory=list)
    lost: list[LostExecutor] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)  # executor ID -> time of its loss, for any reason
    removed: dict[str, int] = field(default_factory=dict)  # executor ID -> time of its removal: idle, decommissioned
    event_log: str = ""  # URI of the event log

    @property
    def tasks(self) -> list[Task]:
        """The attempts of tasks of all jobs."""
        return [task for job in self.jobs for task in job.tasks]

    @property
    def has_local_events(self) -> bool:
        """True if the event log is a file of the driver's machine: HDFS has no part in it."""
        return self.event_log.startswith("file:")

    def at(self, point: str) -> int | None:
        """Return the time of a named point; None without its line."""
        return self.points[point].at_ns if point in self.points else None


DRIVER_POINTS = {
    "JVM SparkContext": "Running Spark version",
    "connecting": "Connecting to master spark://",
    "connected": "Connected to Spark cluster with app ID",
    "application id": "Application ID is assigned",
    "submitting": "Submitting application application_",
    "submitted": "Submitted application application_",
    "running": "has started running",
    "ready": "SchedulerBackend is ready for scheduling",
    "stopping": "SparkContext is stopping",
    "executors told": "Shutting down all executors",
    "event log closing": "Stopping event writer for",
    "stopped": "Successfully stopped SparkContext",
    "shutdown hook": "Shutdown hook called",
}
"""Name of a point -> a part of its line."""


def contexts(lines: Sequence[LogLine]) -> list[Sequence[LogLine]]:
    """Split the log of a JVM into its SparkContexts, one after the other. The first has also all lines before it."""
    text = DRIVER_POINTS["JVM SparkContext"]
    begun = [at for at, line in enumerate(lines) if text in line.message and line.logger.endswith("SparkContext")]
    bounds = [0, *begun[1:], len(lines)]
    return [lines[start:end] for start, end in pairwise(bounds)]


def joined(logs: Sequence[DriverLog]) -> DriverLog:
    """Return one log of all SparkContexts of a JVM, with the points of the first."""
    log = DriverLog(points=logs[0].points, event_log=logs[0].event_log)
    for one in logs:
        log.jobs += one.jobs
        log.uploads += one.uploads
        log.errors += one.errors
        log.lost += one.lost
        log.registered |= one.registered
        log.gone |= one.gone
        log.removed |= one.removed
    return log


def driver(lines: Sequence[LogLine], number: int = 1) -> DriverLog:
    """Read the log of the JVM that has the SparkContext of the application `number` of the run."""
    log = DriverLog()
    jobs: dict[int, Job] = {}
    stage_job: dict[int, Job] = {}
    tasks: dict[int, Task] = {}
    newest: Job | None = None
    lines = [line for line in lines if line.level != "TRACE"]  # `rpc` reads these lines
    for index, line in enumerate(lines):
        for name, text in DRIVER_POINTS.items():
            if text in line.message and name not in log.points:
                log.points[name] = line
        if match := _JOB.search(line.message):
            newest = jobs[int(match[1])] = Job(int(match[1]), match[2].split(" at ")[0], line.at_ns)
        elif (match := _STAGE.search(line.message)) and newest:
            # Spark submits later stages after earlier stages have ended: they belong to a job that has not ended
            open_ = [job for job in jobs.values() if job.end_ns is None]
            stage_job[int(match[1])] = open_[-1] if open_ else newest
            stage_job[int(match[1])].stages[int(match[1])] = [line.at_ns]
        elif match := _TASK_SET.search(line.message):
            if job := stage_job.get(int(match[1])):
                job.stages[int(match[1])].append(line.at_ns)
        elif match := _STARTING.search(line.message):
            if job := stage_job.get(int(match[2])):
                key = executor_key(number, match[5])
                task = Task(int(match[3]), int(match[2]), key, line.at_ns, index=int(match[1]))
                tasks[task.id] = task
                job.tasks.append(task)
        elif match := _DONE.search(line.message):
            if int(match[1]) in tasks:
                tasks[int(match[1])].end_ns = line.at_ns
        elif match := _NOT_DONE.search(line.message):
            if int(match[1]) in tasks:
                task = tasks[int(match[1])]
                task.lost_ns, task.loss = line.at_ns, _LOSSES.get(match[2], "failed")
        elif match := _KILLING.search(line.message):
            if int(match[1]) in tasks:
                tasks[int(match[1])].loss = "killed"
        elif match := _JOB_END.search(line.message):
            if int(match[1]) in jobs:
                jobs[int(match[1])].end_ns, jobs[int(match[1])].thread = line.at_ns, line.thread
        elif match := _REGISTERED.search(line.message):
            log.registered.setdefault(executor_key(number, match[1]), line)
        elif match := _GONE.search(line.message):
            log.gone.setdefault(executor_key(number, match[1]), line.at_ns)
            if released := _LOST.search(line.message):
                log.lost.append(LostExecutor(line.at_ns, released[3].rstrip("."), released[2]))
        elif match := _REMOVED.search(line.message):
            log.removed.setdefault(executor_key(number, match[1]), line.at_ns)
        elif (match := _EVENTS.match(line.message)) and not log.event_log:
            log.event_log = match[1]
        elif match := _UPLOAD.search(line.message):
            after = lines[index + 1].at_ns if index + 1 < len(lines) else line.at_ns
            log.uploads.append((line, match[1], after))
        if line.level == "ERROR":
            log.errors.append(line.message)
    log.jobs = list(jobs.values())
    return log


@dataclass(slots=True)
class AmLog:
    """The ApplicationMaster's log: its executors, and in cluster mode the driver's Python."""

    first: LogLine | None = None
    registering: LogLine | None = None
    requests: list[LogLine] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)  # times at which the driver changed the number of executors
    unregistering: LogLine | None = None
    containers: dict[str, str] = field(default_factory=dict)  # executor ID -> container ID
    launching: dict[str, LogLine] = field(default_factory=dict)  # by container ID
    user_exit: tuple[int, int] | None = None  # time and exit code of the driver's Python, if it failed

    @property
    def requested(self) -> LogLine | None:
        """The first request for executors' containers."""
        return self.requests[0] if self.requests else None

    def requested_before(self, at_ns: int | None) -> int | None:
        """Return the time of the last request until `at_ns`, or of the first request if none precedes it."""
        made = [line.at_ns for line in self.requests]
        return max((ns for ns in made if at_ns is not None and ns <= at_ns), default=made[0] if made else None)


def application_master(lines: Iterable[LogLine]) -> AmLog:
    """Read the log of one attempt's ApplicationMaster."""
    log = AmLog()
    for line in lines:
        log.first = log.first or line
        if "Registering the ApplicationMaster" in line.message:
            log.registering = log.registering or line
        elif "container requests" in line.message and "Submitted" in line.message:
            log.requests.append(line)
        elif line.message.startswith("Driver requested a total number of "):
            log.asked.append(line.at_ns)
        elif "Unregistering ApplicationMaster" in line.message:
            log.unregistering = log.unregistering or line
        elif log.user_exit is None and (match := _USER_EXIT.search(line.message)):
            log.user_exit = line.at_ns, int(match[1])
        elif match := _LAUNCHING.search(line.message):
            log.containers[match[3]] = match[1]
            log.launching[match[1]] = line
    return log


@dataclass(frozen=True, slots=True)
class Split:
    """The input of a task: an HDFS path and a number of bytes, at the time before the task opens it."""

    path: str
    bytes: int
    at_ns: int


@dataclass(slots=True)
class ExecutorLog:
    """The log of one executor; task IDs are Spark's TIDs."""

    first: LogLine | None = None
    connecting: LogLine | None = None
    registered: LogLine | None = None
    shutdown: LogLine | None = None
    got: dict[int, int] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)  # failed and killed tasks included
    splits: dict[int, Split] = field(default_factory=dict)  # by TID
    running: dict[int, int] = field(default_factory=dict)
    python: dict[int, int] = field(default_factory=dict)  # start of a task's Python execution
    python_ms: dict[int, int] = field(default_factory=dict)  # time that a task ran in its Python workers
    deserialised: dict[int, int] = field(default_factory=dict)  # time at which a task requests its first broadcast
    broadcasts: list[tuple[int, int, int]] = field(default_factory=list)  # task, start and end of each broadcast read
    functions: list[tuple[int, int, int]] = field(default_factory=list)  # task, its broadcast, its Python function


def task_of(thread: str) -> int:
    """Return the ID of the task that a thread of an executor runs; -1 for other threads."""
    match = _OF_TASK.search(thread)
    return int(match[1]) if match else -1


def executor(lines: Iterable[LogLine]) -> ExecutorLog:
    """Read one executor's log."""
    log = ExecutorLog()
    reading: dict[tuple[str, str], int] = {}
    read: dict[str, int] = {}  # thread of a task -> time at which it received its first broadcast
    for line in lines:
        log.first = log.first or line
        message = line.message
        for pattern, times in ((_GOT, log.got), (_RUNNING, log.running), (_PYTHON, log.python)):
            if match := pattern.search(message):
                times[int(match[1])] = line.at_ns
        if message.startswith("Connecting to driver"):
            log.connecting = log.connecting or line
        elif "Successfully registered with driver" in message:
            log.registered = log.registered or line
        elif "Driver commanded a shutdown" in message:
            log.shutdown = log.shutdown or line
        elif match := _SPLIT.search(message):
            log.splits[int(match[1])] = Split(match[2], int(match[4]), line.at_ns)
        elif (match := _READING.search(message)) and (task := task_of(line.thread)) >= 0:
            reading[line.thread, match[1]] = line.at_ns
            log.deserialised.setdefault(task, line.at_ns)
        elif match := _READ.search(message):
            if (begun_ns := reading.pop((line.thread, match[1]), None)) is not None:
                log.broadcasts.append((task_of(line.thread), begun_ns, line.at_ns))
                read.setdefault(line.thread, line.at_ns)
        elif _RUNNER.match(message) and (read_ns := read.get(line.thread)) is not None:
            log.functions.append((task_of(line.thread), read_ns, line.at_ns))
        elif (match := _TIMES.match(message)) and (task := task_of(line.thread)) >= 0:
            log.python_ms[task] = log.python_ms.get(task, 0) + int(match[1])
        elif match := _ENDED.search(message):
            log.finished.setdefault(int(match[1]), line.at_ns)
    return log
