"""Spark's own metrics of its tasks, in sparkMeasure's names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlobd.evidence import event_log
from dlobd.evidence.evidence import Evidence
from dlobd.fields import plain
from dlobd.measures.spark_metrics import METRICS, spark_metrics

DATA = Path(__file__).parents[1] / "data"
LINES = (DATA / "event-log.jsonl").read_text().splitlines()

SAME = """executorRunTime executorCpuTime executorDeserializeTime executorDeserializeCpuTime resultSize jvmGCTime
resultSerializationTime memoryBytesSpilled diskBytesSpilled"""
SPARKS_NAMES = {name: name for name in SAME.split()}
SPARKS_NAMES |= {"bytesRead": "input.bytesRead", "recordsRead": "input.recordsRead"}


def found(lines: list[str]) -> dict[str, Any]:
    log = event_log.parse(lines)
    metrics = plain(spark_metrics(log.tasks, log.stage_calls))
    assert metrics is not None
    return metrics


def task(number: int, stage: int, length_ms: int, ok: bool = True, **metrics: int) -> str:
    return json.dumps(
        {
            "Event": "SparkListenerTaskEnd",
            "Stage ID": stage,
            "Stage Attempt ID": 0,
            "Task End Reason": {"Reason": "Success" if ok else "ExceptionFailure"},
            "Task Info": {"Task ID": number, "Launch Time": 1000, "Finish Time": 1000 + length_ms},
            "Task Metrics": {name.replace("_", " "): value for name, value in metrics.items()},
        }
    ).replace('{"Event": "Spark', '{"Event":"Spark')


def test_the_tasks_of_a_real_run_sum_to_sparks_own_sums() -> None:
    metrics = found(LINES)
    completed = [json.loads(line)["Stage Info"] for line in LINES if '"SparkListenerStageCompleted"' in line]
    assert [stage["stage"] for stage in metrics["stages"]] == [info["Stage ID"] for info in completed] == [0, 1, 2]
    for stage, info in zip(metrics["stages"], completed, strict=True):
        own = {one["Name"].removeprefix("internal.metrics."): one["Value"] for one in info["Accumulables"]}
        for name, sparks in SPARKS_NAMES.items():
            value = own.get(sparks, 0) // (1_000_000 if "CpuTime" in name else 1)
            assert stage["metrics"][name] == value, (info["Stage ID"], name)
        assert stage["metrics"]["numTasks"] == info["Number of Tasks"]
    assert sum(stage["metrics"]["executorCpuTime"] for stage in metrics["stages"]) > 1000


def test_a_run_is_the_sum_of_its_stages() -> None:
    metrics = found(LINES)
    assert [stage["call"] for stage in metrics["stages"]] == ["foreachPartition", "collect", "foreachPartition"]
    assert metrics["metrics"].keys() == {"numStages", "numTasks", "elapsedTime", *METRICS}
    for name in METRICS:
        values = [stage["metrics"][name] for stage in metrics["stages"]]
        largest = name in ("resultSize", "peakExecutionMemory")
        assert metrics["metrics"][name] == (max(values) if largest else sum(values)), name
    assert metrics["metrics"]["numStages"] == 3
    assert metrics["metrics"]["numTasks"] == 16
    assert metrics["metrics"]["recordsRead"] == 12 * 30_000
    assert metrics["metrics"]["elapsedTime"] <= 1_795_358_781_915 - 1_795_358_741_517  # Spark's, of its stages


def test_skew_time_units_and_failed_tasks() -> None:
    lines = [task(0, 0, 10), task(1, 0, 20), task(2, 0, 70), task(3, 1, 10), task(4, 1, 15)]
    metrics = found(lines)
    assert [stage["skew_ns"] for stage in metrics["stages"]] == [50_000_000, 2_500_000]
    assert metrics["skew_ns"] == 52_500_000
    assert metrics["metrics"]["elapsedTime"] == 70
    half = {"Executor_CPU_Time": 600_000}
    assert found([task(0, 0, 1, **half), task(1, 0, 1, **half)])["metrics"]["executorCpuTime"] == 1
    assert found([task(0, 0, 1, **half), task(1, 1, 1, **half)])["metrics"]["executorCpuTime"] == 0
    metrics = found([task(0, 0, 10, Executor_Run_Time=7), task(1, 0, 10, ok=False)])
    assert metrics["failed_tasks"] == 1
    assert metrics["metrics"]["numTasks"] == 2
    assert metrics["metrics"]["executorRunTime"] == 7


def test_without_tasks_or_stages_metrics_are_missing() -> None:
    assert spark_metrics([], {}) is None
    native = Evidence(DATA / "native-run")
    assert spark_metrics(native.event_log.tasks, native.event_log.stage_calls) is None
    assert found(["", LINES[0], LINES[1][:200]])["metrics"]["numTasks"] == 1
    quick = Evidence(DATA / "quick-run")
    metrics = plain(spark_metrics(quick.event_log.tasks, quick.event_log.stage_calls))
    assert {stage["call"] for stage in metrics["stages"]} == {None}
    assert metrics["metrics"]["recordsRead"] == 6000
