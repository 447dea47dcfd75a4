"""Spark's event log: what each task read and how long it ran, in Spark's own words and milliseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_PROFILE, _STAGE, _TASK = "SparkListenerResourceProfileAdded", "SparkListenerStageSubmitted", "SparkListenerTaskEnd"


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """One ended task. Times are wall-clock milliseconds of the driver; `run_ms` and `deserialize_ms` the executor's.

    `run_ms` counts each CPU of the task, as Spark does since SPARK-51666: a task of two CPUs that runs for 3 s has
    6,000. Other times do not.
    """

    id: int
    launch_ms: int
    finish_ms: int
    run_ms: int
    deserialize_ms: int
    read_bytes: int  # by Spark's own input formats
    ok: bool
    stage: tuple[int, int] = (0, 0)  # id and attempt
    cpus: float = 1  # that its stage's resource profile asks for each task, `spark.task.cpus` by default
    raw: Mapping[str, Any] = field(default_factory=dict)  # `Task Metrics` as Spark wrote them; empty if it has none
    added: Mapping[str, Any] = field(default_factory=dict)  # name of an accumulable -> what the task added to it


def tasks(lines: Iterable[str]) -> list[TaskMetrics]:
    """The tasks of an event log, as they ended. A line that is cut, because its driver was killed, is left out."""
    found = []
    cpus: dict[int, float] = {}  # of each task, by resource profile
    profiles: dict[tuple[int, int], int] = {}  # by stage
    for event in _events(lines, _PROFILE, _STAGE, _TASK):
        if event["Event"] == _PROFILE:
            cpus[event["Resource Profile Id"]] = event["Task Resource Requests"].get("cpus", {}).get("Amount", 1)
        elif event["Event"] == _STAGE:
            stage = event["Stage Info"]
            profiles[stage["Stage ID"], stage["Stage Attempt ID"]] = stage.get("Resource Profile Id", 0)
        else:
            stage_id = event["Stage ID"], event["Stage Attempt ID"]
            found.append(_task(event, stage_id, cpus.get(profiles.get(stage_id, 0), 1)))
    return found


def stage_calls(lines: Iterable[str]) -> dict[tuple[int, int], str]:
    """Id and attempt of each completed stage to the call that made it, without its place in a file: `collect`."""
    found = {}
    for event in _events(lines, "SparkListenerStageCompleted"):
        info = event["Stage Info"]
        found[info["Stage ID"], info["Stage Attempt ID"]] = info["Stage Name"].partition(" at ")[0]
    return found


def stage_sums(lines: Iterable[str]) -> dict[tuple[int, int], tuple[int, dict[str, Any]]]:
    """Id and attempt of each completed stage to how many tasks it had, and the sums of what they added, by name."""
    found = {}
    for event in _events(lines, "SparkListenerStageCompleted"):
        info = event["Stage Info"]
        sums = {each.get("Name", ""): each.get("Value") for each in info.get("Accumulables", ())}
        found[info["Stage ID"], info["Stage Attempt ID"]] = info["Number of Tasks"], sums
    return found


@dataclass(frozen=True, slots=True)
class Application:
    """An application as its event log begins and ends; times are wall-clock milliseconds of the driver, `properties`
    are Spark's. What the log does not say is empty or None."""

    id: str
    name: str
    start_ms: int
    end_ms: int | None
    spark_version: str
    java_version: str
    properties: Mapping[str, str]


def application(lines: Iterable[str]) -> Application | None:
    """What an event log says of its application; None if it does not say that it started."""
    kinds = ("LogStart", "EnvironmentUpdate", "ApplicationStart", "ApplicationEnd")
    found = {event["Event"]: event for event in _events(lines, *(f"SparkListener{kind}" for kind in kinds))}
    log, environment, start, end = (found.get(f"SparkListener{kind}", {}) for kind in kinds)
    if not start:
        return None
    return Application(
        start["App ID"],
        start["App Name"],
        start["Timestamp"],
        end.get("Timestamp"),
        log.get("Spark Version", ""),
        environment.get("JVM Information", {}).get("Java Version", ""),
        environment.get("Spark Properties", {}),
    )


def block_manager_hosts(lines: Iterable[str]) -> tuple[str, ...]:
    """The hosts by which driver and executors know each other's block managers: addresses, or names."""
    added = _events(lines, "SparkListenerBlockManagerAdded")
    return tuple(sorted({event["Block Manager ID"]["Host"] for event in added}))


def hadoop_settings(lines: Iterable[str]) -> dict[str, str]:
    """Hadoop's settings as the driver had them, its defaults among them; empty where the log does not say."""
    found: dict[str, str] = {}
    for event in _events(lines, "SparkListenerEnvironmentUpdate"):
        found |= event.get("Hadoop Properties", {})
    return found


def _task(event: Mapping[str, Any], stage: tuple[int, int], cpus: float) -> TaskMetrics:
    info, metrics = event["Task Info"], event.get("Task Metrics") or {}
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
        metrics,
        {each.get("Name", ""): each.get("Update") for each in info.get("Accumulables", ())},
    )


def _events(lines: Iterable[str], *kinds: str) -> Iterator[dict[str, Any]]:
    """The events of these kinds; what a line holds is read only where it can be one of them."""
    for line in lines:
        if not any(f'"{kind}"' in line for kind in kinds):
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["Event"] in kinds:
            yield event
