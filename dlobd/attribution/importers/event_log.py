"""Spark's event log: what each task read and how long it ran, in Spark's own words and milliseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """One ended task. Times are wall-clock milliseconds of the driver; `run_ms` and `deserialize_ms` the executor's."""

    id: int
    launch_ms: int
    finish_ms: int
    run_ms: int
    deserialize_ms: int
    read_bytes: int  # by Spark's own input formats
    ok: bool
    stage: tuple[int, int] = (0, 0)  # id and attempt
    raw: Mapping[str, Any] = field(default_factory=dict)  # `Task Metrics` as Spark wrote them; empty if it has none


def tasks(lines: Iterable[str]) -> list[TaskMetrics]:
    """The tasks of an event log, as they ended. A line that is cut, because its driver was killed, is left out."""
    found = []
    for line in lines:
        if '"SparkListenerTaskEnd"' not in line:
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        found.append(
            TaskMetrics(
                info["Task ID"],
                info["Launch Time"],
                info["Finish Time"],
                metrics.get("Executor Run Time", 0),
                metrics.get("Executor Deserialize Time", 0),
                metrics.get("Input Metrics", {}).get("Bytes Read", 0),
                event["Task End Reason"]["Reason"] == "Success",
                (event["Stage ID"], event["Stage Attempt ID"]),
                metrics,
            )
        )
    return found


def stage_calls(lines: Iterable[str]) -> dict[tuple[int, int], str]:
    """Id and attempt of each completed stage to the call that made it, without its place in a file: `collect`."""
    found = {}
    for line in lines:
        if '"SparkListenerStageCompleted"' not in line:
            continue
        try:
            info = json.loads(line)["Stage Info"]
        except ValueError:
            continue
        found[info["Stage ID"], info["Stage Attempt ID"]] = info["Stage Name"].partition(" at ")[0]
    return found
