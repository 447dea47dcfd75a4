"""Sums Spark's own metrics of its tasks, with the names and units of sparkMeasure's stage metrics. Pure.

Names, units and sums are those of https://github.com/LucaCanali/sparkMeasure, `StageMetrics.aggregateStageMetrics`:
times are whole milliseconds, nanoseconds are divided by 10^6 in each stage, and `resultSize` and `peakExecutionMemory`
are the largest stage's. `elapsedTime` is from tasks, as in its task metrics. Failed tasks are included where Spark has
metrics of them, as in Spark's own sums of a stage. Times of parallel tasks add up: they may exceed the wall time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dlobd.evidence.event_log import TaskMetrics
from dlobd.record.resources import SparkMetrics, StageMetrics


class Metric:
    """A metric: its unit and meaning, and its paths in the event log's `Task Metrics`, which are added up."""

    def __init__(self, unit: str, text: str, *paths: str) -> None:
        self.unit, self.text, self.paths = unit, text, paths


METRICS: Mapping[str, Metric] = {
    "executorRunTime": Metric(
        "ms", "Time that tasks ran in executors; Spark counts each CPU of a task (SPARK-51666).", "Executor Run Time"
    ),
    "executorCpuTime": Metric(
        "ms", "CPU time of tasks in the executors' JVMs, without Python workers.", "Executor CPU Time"
    ),
    "executorDeserializeTime": Metric("ms", "Time to deserialise tasks.", "Executor Deserialize Time"),
    "executorDeserializeCpuTime": Metric("ms", "CPU time to deserialise tasks.", "Executor Deserialize CPU Time"),
    "resultSerializationTime": Metric("ms", "Time to serialise results.", "Result Serialization Time"),
    "jvmGCTime": Metric("ms", "Garbage collection in executors' JVMs while tasks ran.", "JVM GC Time"),
    "shuffleFetchWaitTime": Metric(
        "ms", "Time tasks waited for shuffle blocks.", "Shuffle Read Metrics/Fetch Wait Time"
    ),
    "shuffleWriteTime": Metric("ms", "Time tasks wrote shuffle data.", "Shuffle Write Metrics/Shuffle Write Time"),
    "resultSize": Metric("bytes", "Size of the results of one stage.", "Result Size"),
    "diskBytesSpilled": Metric("bytes", "Bytes spilled to disk.", "Disk Bytes Spilled"),
    "memoryBytesSpilled": Metric("bytes", "Size in memory of spilled data.", "Memory Bytes Spilled"),
    "peakExecutionMemory": Metric(
        "bytes", "Memory for shuffles, aggregations and joins of all tasks of one stage.", "Peak Execution Memory"
    ),
    "recordsRead": Metric("records", "Records read by Spark's own input formats.", "Input Metrics/Records Read"),
    "bytesRead": Metric("bytes", "Bytes read by Spark's own input formats.", "Input Metrics/Bytes Read"),
    "recordsWritten": Metric("records", "Records written by Spark's output formats.", "Output Metrics/Records Written"),
    "bytesWritten": Metric("bytes", "Bytes written by Spark's output formats.", "Output Metrics/Bytes Written"),
    "shuffleRecordsRead": Metric("records", "Records read from shuffles.", "Shuffle Read Metrics/Total Records Read"),
    "shuffleTotalBlocksFetched": Metric(
        "blocks",
        "Shuffle blocks fetched.",
        "Shuffle Read Metrics/Local Blocks Fetched",
        "Shuffle Read Metrics/Remote Blocks Fetched",
    ),
    "shuffleLocalBlocksFetched": Metric(
        "blocks", "Shuffle blocks from the same executor.", "Shuffle Read Metrics/Local Blocks Fetched"
    ),
    "shuffleRemoteBlocksFetched": Metric(
        "blocks", "Shuffle blocks from other executors.", "Shuffle Read Metrics/Remote Blocks Fetched"
    ),
    "shuffleTotalBytesRead": Metric(
        "bytes",
        "Bytes read from shuffles.",
        "Shuffle Read Metrics/Local Bytes Read",
        "Shuffle Read Metrics/Remote Bytes Read",
    ),
    "shuffleLocalBytesRead": Metric(
        "bytes", "Shuffle bytes from the same executor.", "Shuffle Read Metrics/Local Bytes Read"
    ),
    "shuffleRemoteBytesRead": Metric(
        "bytes", "Shuffle bytes from other executors.", "Shuffle Read Metrics/Remote Bytes Read"
    ),
    "shuffleRemoteBytesReadToDisk": Metric(
        "bytes",
        "Shuffle bytes from other executors that went to disk.",
        "Shuffle Read Metrics/Remote Bytes Read To Disk",
    ),
    "shuffleBytesWritten": Metric(
        "bytes", "Bytes written for shuffles.", "Shuffle Write Metrics/Shuffle Bytes Written"
    ),
    "shuffleRecordsWritten": Metric(
        "records", "Records written for shuffles.", "Shuffle Write Metrics/Shuffle Records Written"
    ),
}
"""The metrics by sparkMeasure's names; in a run each is the sum over its stages, or the largest stage's."""

COUNTS: Mapping[str, Metric] = {
    "numStages": Metric("stages", "Stages with an ended task; each attempt counts."),
    "numTasks": Metric("tasks", "Ended tasks."),
    "elapsedTime": Metric("ms", "Time from the launch of the first task to the end of the last task."),
}
"""Metrics of the run that are no sums over `Task Metrics`."""

NANOSECONDS = ("executorCpuTime", "executorDeserializeCpuTime", "shuffleWriteTime")
"""Metrics that Spark writes in nanoseconds; all other times are in milliseconds."""
LARGEST = ("resultSize", "peakExecutionMemory")
"""Metrics whose value for a run is the largest stage's."""


def spark_metrics(tasks: Sequence[TaskMetrics], calls: Mapping[tuple[int, int], str]) -> SparkMetrics | None:
    """Return the member `spark_metrics` of run.json; None for a run without an ended task.

    `calls`: stage id and attempt to the call that made the stage, where known."""
    by_stage: dict[tuple[int, int], list[TaskMetrics]] = defaultdict(list)
    for task in tasks:
        by_stage[task.stage].append(task)
    if not by_stage:
        return None
    stages = tuple(_stage(stage, members, calls.get(stage)) for stage, members in sorted(by_stage.items()))
    total = {
        name: (max if name in LARGEST else sum)([stage.metrics[name] for stage in stages])
        for name in ("numTasks", *METRICS)
    }
    elapsed_ms = max(task.finish_ms for task in tasks) - min(task.launch_ms for task in tasks)
    return SparkMetrics(
        metrics={"numStages": len(stages), "elapsedTime": elapsed_ms, **total},
        failed_tasks=sum(not task.ok for task in tasks),
        skew_ns=sum(stage.skew_ns for stage in stages),
        stages=stages,
    )


def _stage(stage: tuple[int, int], tasks: Sequence[TaskMetrics], call: str | None) -> StageMetrics:
    lengths_ns = [(task.finish_ms - task.launch_ms) * 1_000_000 for task in tasks]
    metrics = {name: sum(_value(task.raw, metric.paths) for task in tasks) for name, metric in METRICS.items()}
    in_ms = {name: metrics[name] // 1_000_000 for name in NANOSECONDS}
    skew_ns = round(max(lengths_ns) - median(lengths_ns))
    return StageMetrics(stage[0], stage[1], call, skew_ns, {"numTasks": len(tasks), **metrics, **in_ms})


def _value(raw: Mapping[str, Any], paths: Sequence[str]) -> int:
    total = 0
    for path in paths:
        value: Any = raw
        for step in path.split("/"):
            value = value.get(step, {})
        total += value or 0  # a task that was lost with its executor has no metrics
    return total
