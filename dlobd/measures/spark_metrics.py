"""Sums Spark's own metrics of its tasks, with the names and units of sparkMeasure's stage metrics. Pure.

Names, units and sums follow https://github.com/LucaCanali/sparkMeasure, `StageMetrics.aggregateStageMetrics`: times are
whole milliseconds, nanoseconds are divided by 10^6 in each stage, and `resultSize` and `peakExecutionMemory` are maxima
over stages. `elapsedTime` is from tasks, as in sparkMeasure's task metrics. Failed tasks with metrics are included, as
in Spark's own sums of a stage. Times of parallel tasks add up: they may exceed the wall time.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from dlobd.evidence.event_log import EventLog, TaskMetrics
from dlobd.record.resources import SparkMetrics, StageMetrics
from dlobd.spans import JsonMap


class Metric:
    """A metric: its unit and meaning, and its paths in the event log's `Task Metrics`, which are added up."""

    def __init__(self, unit: str, text: str, *paths: str) -> None:
        self.unit, self.text, self.paths = unit, text, paths


_GROUPS = {
    "in": "Input Metrics",
    "out": "Output Metrics",
    "read": "Shuffle Read Metrics",
    "write": "Shuffle Write Metrics",
}
_METRICS = """
executorRunTime | ms | Executor Run Time | Time that tasks ran; Spark counts each CPU of a task (SPARK-51666).
executorCpuTime | ms | Executor CPU Time | CPU time of tasks in the executors' JVMs, without Python workers.
executorDeserializeTime | ms | Executor Deserialize Time | Time to deserialise tasks.
executorDeserializeCpuTime | ms | Executor Deserialize CPU Time | CPU time to deserialise tasks.
resultSerializationTime | ms | Result Serialization Time | Time to serialise results.
jvmGCTime | ms | JVM GC Time | Garbage collection in executors' JVMs while tasks ran.
shuffleFetchWaitTime | ms | read/Fetch Wait Time | Time tasks waited for shuffle blocks.
shuffleWriteTime | ms | write/Shuffle Write Time | Time tasks wrote shuffle data.
resultSize | bytes | Result Size | Size of the results of one stage.
diskBytesSpilled | bytes | Disk Bytes Spilled | Bytes spilled to disk.
memoryBytesSpilled | bytes | Memory Bytes Spilled | Size in memory of spilled data.
peakExecutionMemory | bytes | Peak Execution Memory | Memory for shuffles, aggregations and joins of one stage.
recordsRead | records | in/Records Read | Records read by Spark's own input formats.
bytesRead | bytes | in/Bytes Read | Bytes read by Spark's own input formats.
recordsWritten | records | out/Records Written | Records written by Spark's output formats.
bytesWritten | bytes | out/Bytes Written | Bytes written by Spark's output formats.
shuffleRecordsRead | records | read/Total Records Read | Records read from shuffles.
shuffleTotalBlocksFetched | blocks | read/Local Blocks Fetched + read/Remote Blocks Fetched | Shuffle blocks fetched.
shuffleLocalBlocksFetched | blocks | read/Local Blocks Fetched | Shuffle blocks from the same executor.
shuffleRemoteBlocksFetched | blocks | read/Remote Blocks Fetched | Shuffle blocks from other executors.
shuffleTotalBytesRead | bytes | read/Local Bytes Read + read/Remote Bytes Read | Bytes read from shuffles.
shuffleLocalBytesRead | bytes | read/Local Bytes Read | Shuffle bytes from the same executor.
shuffleRemoteBytesRead | bytes | read/Remote Bytes Read | Shuffle bytes from other executors.
shuffleRemoteBytesReadToDisk | bytes | read/Remote Bytes Read To Disk | Shuffle bytes from other executors to disk.
shuffleBytesWritten | bytes | write/Shuffle Bytes Written | Bytes written for shuffles.
shuffleRecordsWritten | records | write/Shuffle Records Written | Records written for shuffles.
"""


def _metric(row: str) -> tuple[str, Metric]:
    name, unit, paths, text = row.split(" | ")
    parts = (path.rpartition("/") for path in paths.split(" + "))
    return name, Metric(unit, text, *(f"{_GROUPS[group]}/{last}" if group else last for group, _, last in parts))


METRICS: Mapping[str, Metric] = dict(map(_metric, _METRICS.strip().splitlines()))
"""The metrics by sparkMeasure's names; a run has the sum over its stages, or the maximum."""

COUNTS: Mapping[str, Metric] = {
    "numStages": Metric("stages", "Stages with an ended task; each attempt counts."),
    "numTasks": Metric("tasks", "Ended tasks."),
    "elapsedTime": Metric("ms", "Time from the launch of the first task to the end of the last task."),
}
"""Metrics of a run that are not sums over `Task Metrics`."""

NANOSECONDS = ("executorCpuTime", "executorDeserializeCpuTime", "shuffleWriteTime")
"""Metrics that Spark writes in nanoseconds; all other times are in milliseconds."""
LARGEST = ("resultSize", "peakExecutionMemory")
"""Metrics with the maximum over stages as the value of a run."""


def spark_metrics(log: EventLog) -> SparkMetrics | None:
    """Return the member `spark_metrics` of run.json; None without an ended task."""
    by_stage: dict[tuple[int, int], list[TaskMetrics]] = defaultdict(list)
    for task in log.tasks:
        by_stage[task.stage].append(task)
    if not by_stage:
        return None
    stages = tuple(_stage(stage, members, log.stage_calls.get(stage)) for stage, members in sorted(by_stage.items()))
    total = {
        name: (max if name in LARGEST else sum)([stage.metrics[name] for stage in stages])
        for name in ("numTasks", *METRICS)
    }
    elapsed_ms = max(task.finish_ms for task in log.tasks) - min(task.launch_ms for task in log.tasks)
    return SparkMetrics(
        metrics={"numStages": len(stages), "elapsedTime": elapsed_ms, **total},
        failed_tasks=sum(not task.ok for task in log.tasks),
        skew_ns=sum(stage.skew_ns for stage in stages),
        stages=stages,
    )


def _stage(stage: tuple[int, int], tasks: Sequence[TaskMetrics], call: str | None) -> StageMetrics:
    lengths_ns = [(task.finish_ms - task.launch_ms) * 1_000_000 for task in tasks]
    metrics = {name: sum(_value(task.raw, metric.paths) for task in tasks) for name, metric in METRICS.items()}
    in_ms = {name: metrics[name] // 1_000_000 for name in NANOSECONDS}
    skew_ns = round(max(lengths_ns) - median(lengths_ns))
    return StageMetrics(stage[0], stage[1], call, skew_ns, {"numTasks": len(tasks), **metrics, **in_ms})


def _value(raw: JsonMap, paths: Sequence[str]) -> int:
    parts = (path.rpartition("/") for path in paths)
    # a task that was lost with its executor has no metrics
    return sum((raw.get(group, {}) if group else raw).get(name) or 0 for group, _, name in parts)
