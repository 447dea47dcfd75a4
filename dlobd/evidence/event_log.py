"""Reads Spark's event log: Spark's own record of an application, its stages and its tasks, in milliseconds.

Damaged lines are counted and ignored. Tasks and stages are then unknown, because their sums would be too small. A
damaged last line is an exception: a killed driver may leave one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from dlobd.bundle import reading
from dlobd.bundle.reading import Members
from dlobd.spans import JsonMap


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """One ended task. Launch and finish are on the driver's wall clock; the executor measured the other times."""

    id: int
    launch_ms: int
    finish_ms: int
    run_ms: int  # multiplied by the task's CPUs (SPARK-51666): 6,000 for 3 s on two CPUs
    deserialize_ms: int
    read_bytes: int  # by Spark's own input formats
    ok: bool
    stage: tuple[int, int] = (0, 0)  # ID and attempt
    cpus: float = 1  # per task, from the resource profile of its stage; default: `spark.task.cpus`
    executor: str = ""
    python_ms: int | None = None  # SQL metric of its Python workers; None without UDFs
    raw: JsonMap = field(default_factory=dict)  # used members of `Task Metrics`; empty if it has none


@dataclass(slots=True)
class EventLog:
    """The events of one log. The key of a stage is its ID and attempt."""

    tasks: list[TaskMetrics] = field(default_factory=list)
    stage_calls: dict[tuple[int, int], str] = field(default_factory=dict)  # the call that submitted it: `collect`
    hosts: set[str] = field(default_factory=set)  # addresses or names of the hosts with a block manager
    spark_settings: dict[str, str] = field(default_factory=dict)  # in the driver, without defaults
    hadoop_settings: dict[str, str] = field(default_factory=dict)  # in the driver, with defaults
    queries: dict[int, str] = field(default_factory=dict)  # job ID -> ID of its SQL execution
    streamed: set[int] = field(default_factory=set)  # IDs of jobs that streams submitted
    exceptions: list[str] = field(default_factory=list)  # of failed task attempts, with their stack traces
    has_start: bool = False  # of the application
    has_end: bool = False  # of the application
    lines: int = 0
    damaged_lines: int = 0


def parse(lines: Iterable[str]) -> EventLog:
    """Read an event log."""
    log = EventLog()
    cpus: dict[int, float] = {}  # CPUs per task, by resource profile
    profiles: dict[tuple[int, int], int] = {}  # by stage
    whole = True
    for line in filter(str.strip, lines):
        event = _event(line)
        whole = event is not None
        log.lines += 1
        log.damaged_lines += not whole
        if not event:
            continue
        kind = event["Event"].removeprefix("SparkListener")
        if kind == "ResourceProfileAdded":
            cpus[event["Resource Profile Id"]] = event["Task Resource Requests"].get("cpus", {}).get("Amount") or 1
        elif kind == "JobStart":
            settings = event.get("Properties") or {}
            if "spark.sql.execution.id" in settings:
                log.queries[event["Job ID"]] = settings["spark.sql.execution.id"]
            if any(name in settings for name in _OF_STREAMS):
                log.streamed.add(event["Job ID"])
        elif kind == "StageSubmitted":
            stage = event["Stage Info"]
            profiles[stage["Stage ID"], stage["Stage Attempt ID"]] = stage.get("Resource Profile Id", 0)
        elif kind == "TaskEnd":
            stage_id = event["Stage ID"], event["Stage Attempt ID"]
            log.tasks.append(_task(event, stage_id, cpus.get(profiles.get(stage_id, 0), 1)))
            if text := event["Task End Reason"].get("Description"):
                log.exceptions.append(text)
        elif kind == "StageCompleted":
            info = event["Stage Info"]
            stage_id = info["Stage ID"], info["Stage Attempt ID"]
            log.stage_calls[stage_id] = info["Stage Name"].partition(" at ")[0]
        elif kind == "BlockManagerAdded":
            log.hosts.add(event["Block Manager ID"]["Host"])
        elif kind == "EnvironmentUpdate":
            log.spark_settings |= event.get("Spark Properties", {})
            log.hadoop_settings |= event.get("Hadoop Properties", {})
        elif kind == "ApplicationStart":
            log.has_start = True
        elif kind == "ApplicationEnd":
            log.has_end = True
    if log.damaged_lines > (not whole):
        log.tasks, log.stage_calls = [], {}
    return log


def joined(logs: Sequence[EventLog]) -> EventLog:
    """Return tasks, stages and settings of several applications; each numbers its stages after those before it."""
    log, first = EventLog(), 0
    for one in logs:
        log.tasks += [replace(task, stage=(task.stage[0] + first, task.stage[1])) for task in one.tasks]
        log.stage_calls |= {(stage + first, attempt): call for (stage, attempt), call in one.stage_calls.items()}
        log.exceptions += one.exceptions
        log.hosts |= one.hosts
        log.spark_settings |= one.spark_settings
        log.hadoop_settings |= one.hadoop_settings
        log.damaged_lines += one.damaged_lines
        first = 1 + max((stage for stage, _ in log.stage_calls), default=first - 1)
    return log


def _event(line: str) -> JsonMap | None:
    """Return an event, empty for an unused kind; None for a damaged line."""
    if not any(f'"{kind}"' in line for kind in _EVENTS):
        # most events: they are not parsed, but a truncated line is detected
        return {} if line.startswith("{") and line.rstrip().endswith("}") else None
    event = reading.parse_json(line, JsonMap)
    if isinstance(event, reading.Damaged) or not isinstance(event.get("Event"), str):
        return None
    shape = _EVENTS.get(event["Event"])
    return {} if shape is None else None if reading.mismatch(event, shape) else event


_OF_STREAMS = ("sql.streaming.queryId", "spark.streaming.internal.batchTime")  # settings of jobs of queries, DStreams


def _task(event: JsonMap, stage: tuple[int, int], cpus: float) -> TaskMetrics:
    # the members that are used; all tasks share their names
    info, metrics = event["Task Info"], msgspec.convert(event.get("Task Metrics") or {}, _METRICS)
    updates = [row.get("Update") for row in info.get("Accumulables", ()) if row.get("Name") == _PYTHON_TIME]
    python_ms = [int(text) for text in updates if isinstance(text, str) and text.isdecimal()]
    return TaskMetrics(
        info["Task ID"],
        info["Launch Time"],
        info["Finish Time"],
        metrics.get("Executor Run Time", 0),
        metrics.get("Executor Deserialize Time", 0),
        metrics.get("Input Metrics", {}).get("Bytes Read", 0),
        event["Task End Reason"]["Reason"] == "Success",
        stage,
        cpus,
        info.get("Executor ID", ""),
        sum(python_ms) if python_ms else None,
        metrics,
    )


_STAGE = {"Stage ID": int, "Stage Attempt ID": int}
_TASK = Members(
    {"Task ID": int, "Launch Time": int, "Finish Time": int}, {"Executor ID": str, "Accumulables": list[JsonMap]}
)
_PYTHON_TIME = "time to execute Python code"
_CPUS = Members(optional={"cpus": Members({"Amount": float})})


def _counters(text: str, **groups: str) -> Any:
    """Return the shape of an object with integers. `groups`: objects inside it, with `_` for a space in the name."""
    inner = {name.replace("_", " "): _counters(names) for name, names in groups.items()}
    return Members(optional={**dict.fromkeys(re.split(r",\s+", text), int), **inner})


_METRICS = _counters(
    """Executor Deserialize Time, Executor Deserialize CPU Time, Executor Run Time, Executor CPU Time,
    Peak Execution Memory, Result Size, JVM GC Time, Result Serialization Time, Memory Bytes Spilled,
    Disk Bytes Spilled""",
    Input_Metrics="Bytes Read, Records Read",
    Output_Metrics="Bytes Written, Records Written",
    Shuffle_Write_Metrics="Shuffle Bytes Written, Shuffle Write Time, Shuffle Records Written",
    Shuffle_Read_Metrics="""Remote Blocks Fetched, Local Blocks Fetched, Fetch Wait Time, Remote Bytes Read,
    Remote Bytes Read To Disk, Local Bytes Read, Total Records Read""",
)

_EVENTS = {
    "SparkListenerTaskEnd": Members(
        {**_STAGE, "Task Info": _TASK, "Task End Reason": Members({"Reason": str}, {"Description": str})},
        {"Task Metrics": _METRICS | None},
    ),
    "SparkListenerJobStart": Members({"Job ID": int}, {"Properties": dict[str, str] | None}),
    "SparkListenerStageSubmitted": Members({"Stage Info": Members(_STAGE, {"Resource Profile Id": int})}),
    "SparkListenerStageCompleted": Members({"Stage Info": Members({**_STAGE, "Stage Name": str})}),
    "SparkListenerResourceProfileAdded": Members({"Resource Profile Id": int, "Task Resource Requests": _CPUS}),
    "SparkListenerBlockManagerAdded": Members({"Block Manager ID": Members({"Host": str})}),
    "SparkListenerEnvironmentUpdate": Members(
        optional={"Spark Properties": dict[str, str], "Hadoop Properties": dict[str, str]}
    ),
    "SparkListenerApplicationStart": Members(),
    "SparkListenerApplicationEnd": Members(),
}
"""Kind of an event -> the JSON shape of its used members."""
