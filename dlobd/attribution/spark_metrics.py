"""What Spark itself says of its tasks, under the names and in the units of sparkMeasure's stage metrics. Pure.

Names, units and sums are those of https://github.com/LucaCanali/sparkMeasure, `StageMetrics.aggregateStageMetrics`:
times in whole milliseconds, what Spark has in nanoseconds divided by 10^6 in each stage, `resultSize` and
`peakExecutionMemory` the largest stage's. `elapsedTime` is from tasks, as in its task metrics. Tasks that failed are
included as far as Spark has metrics of them, as in Spark's own sums of a stage. Executor times of parallel tasks add
up: they exceed the wall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dlobd.attribution.importers.event_log import TaskMetrics

_SHUFFLE_READ, _SHUFFLE_WRITE = "Shuffle Read Metrics", "Shuffle Write Metrics"
_INPUT, _OUTPUT = "Input Metrics", "Output Metrics"

METRICS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "executorRunTime": (("Executor Run Time",),),
    "executorCpuTime": (("Executor CPU Time",),),
    "executorDeserializeTime": (("Executor Deserialize Time",),),
    "executorDeserializeCpuTime": (("Executor Deserialize CPU Time",),),
    "resultSerializationTime": (("Result Serialization Time",),),
    "jvmGCTime": (("JVM GC Time",),),
    "shuffleFetchWaitTime": ((_SHUFFLE_READ, "Fetch Wait Time"),),
    "shuffleWriteTime": ((_SHUFFLE_WRITE, "Shuffle Write Time"),),
    "resultSize": (("Result Size",),),
    "diskBytesSpilled": (("Disk Bytes Spilled",),),
    "memoryBytesSpilled": (("Memory Bytes Spilled",),),
    "peakExecutionMemory": (("Peak Execution Memory",),),
    "recordsRead": ((_INPUT, "Records Read"),),
    "bytesRead": ((_INPUT, "Bytes Read"),),
    "recordsWritten": ((_OUTPUT, "Records Written"),),
    "bytesWritten": ((_OUTPUT, "Bytes Written"),),
    "shuffleRecordsRead": ((_SHUFFLE_READ, "Total Records Read"),),
    "shuffleTotalBlocksFetched": ((_SHUFFLE_READ, "Local Blocks Fetched"), (_SHUFFLE_READ, "Remote Blocks Fetched")),
    "shuffleLocalBlocksFetched": ((_SHUFFLE_READ, "Local Blocks Fetched"),),
    "shuffleRemoteBlocksFetched": ((_SHUFFLE_READ, "Remote Blocks Fetched"),),
    "shuffleTotalBytesRead": ((_SHUFFLE_READ, "Local Bytes Read"), (_SHUFFLE_READ, "Remote Bytes Read")),
    "shuffleLocalBytesRead": ((_SHUFFLE_READ, "Local Bytes Read"),),
    "shuffleRemoteBytesRead": ((_SHUFFLE_READ, "Remote Bytes Read"),),
    "shuffleRemoteBytesReadToDisk": ((_SHUFFLE_READ, "Remote Bytes Read To Disk"),),
    "shuffleBytesWritten": ((_SHUFFLE_WRITE, "Shuffle Bytes Written"),),
    "shuffleRecordsWritten": ((_SHUFFLE_WRITE, "Shuffle Records Written"),),
}
"""sparkMeasure's name to where the event log's `Task Metrics` has it; several are added."""

_NANOSECONDS = ("executorCpuTime", "executorDeserializeCpuTime", "shuffleWriteTime")
"""What Spark writes in nanoseconds; all other times are milliseconds already."""
_LARGEST = ("resultSize", "peakExecutionMemory")
"""Of these a run has the largest stage's; of all others the sum."""


def spark_metrics(tasks: Sequence[TaskMetrics], calls: Mapping[tuple[int, int], str]) -> dict[str, Any] | None:
    """The member `spark_metrics` of run.json; None for a run without an ended task, as one without Spark.

    Args:
        calls: stage id and attempt to the call that made the stage, as far as known.
    """
    by_stage: dict[tuple[int, int], list[TaskMetrics]] = defaultdict(list)
    for task in tasks:
        by_stage[task.stage].append(task)
    if not by_stage:
        return None
    stages = [_stage(stage, of, calls.get(stage)) for stage, of in sorted(by_stage.items())]
    total = {
        name: (max if name in _LARGEST else sum)([stage["metrics"][name] for stage in stages])
        for name in ("numTasks", *METRICS)
    }
    elapsed_ms = max(task.finish_ms for task in tasks) - min(task.launch_ms for task in tasks)
    return {
        "metrics": {"numStages": len(stages), "elapsedTime": elapsed_ms, **total},
        "failed_tasks": sum(not task.ok for task in tasks),
        "skew_ns": sum(stage["skew_ns"] for stage in stages),
        "stages": stages,
    }


def _stage(stage: tuple[int, int], tasks: Sequence[TaskMetrics], call: str | None) -> dict[str, Any]:
    lengths_ns = [(task.finish_ms - task.launch_ms) * 1_000_000 for task in tasks]
    metrics = {name: sum(_value(task.raw, places) for task in tasks) for name, places in METRICS.items()}
    in_ms = {name: metrics[name] // 1_000_000 for name in _NANOSECONDS}
    return {
        "stage": stage[0],
        "attempt": stage[1],
        "call": call,
        "skew_ns": round(max(lengths_ns) - median(lengths_ns)),
        "metrics": {"numTasks": len(tasks), **metrics, **in_ms},
    }


def _value(raw: Mapping[str, Any], places: Sequence[Sequence[str]]) -> int:
    """Spark leaves out no metric; a task that was lost with its executor has none at all."""
    total = 0
    for place in places:
        found: Any = raw
        for step in place:
            found = found.get(step, {})
        total += found or 0
    return total
