"""Spark's logs of driver, ApplicationMaster and executors, and its metrics in sparkMeasure's names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlobd.evidence import event_log, log4j, spark
from dlobd.evidence.evidence import Evidence
from dlobd.fields import plain
from dlobd.measures.spark_metrics import METRICS, spark_metrics

DATA = Path(__file__).parents[1] / "data"


def parsed(*messages: str, level: str = "INFO", start: int = 1_000_000) -> Sequence[log4j.LogLine]:
    text = [f"{start + 1_000 * k} 2026-11-21T03:02:40.666 {level} a.B: {m}\n" for k, m in enumerate(messages)]
    return list(log4j.parse(text, "log"))


STARTING = (
    "Starting task {n}.0 in stage {stage}.0 (TID {tid}) (localhost,executor {executor}, partition 0, ANY, 9 bytes) "
)


def test_a_killed_task_ended_too() -> None:
    evidence = Evidence(DATA / "killed-trainer")
    killed = 0
    ended = re.compile(r"(?:Finished|Exception in|Executor killed) task .*\(TID (\d+)\)")
    for name, executor in evidence.executors.items():
        logs = DATA / "killed-trainer" / "logs" / "containers" / evidence.executor_containers[name]
        text = (logs / "stderr").read_text()
        assert set(executor.got) == set(map(int, re.findall(r"Got assigned task (\d+)", text)))
        assert set(executor.finished) == set(map(int, ended.findall(text)))
        killed += text.count("Executor killed task")
    assert killed


def test_tasks_belong_to_their_job_by_stage() -> None:
    log = spark.driver(
        parsed(
            "Got job 4 (collect at a.py:1) with 1 output partitions",
            "Submitting ResultStage 7 (PythonRDD[3] at b), which has no missing parents",
            STARTING.format(n=0, stage=7, tid=8, executor=2),
            "Got job 5 (foreachPartition at /a dir/b.py:321) with 1 output partitions",
            "Submitting ResultStage 9 (PythonRDD[4] at b), which has no missing parents",
            STARTING.format(n=0, stage=9, tid=9, executor=1),
            STARTING.format(n=0, stage=7, tid=10, executor=1),
            STARTING.format(n=0, stage=3, tid=11, executor=1),
            "Job 5 failed: foreachPartition at /a dir/b.py:321, took 6570.49435 ms",
        )
    )
    assert [(job.id, job.name, [task.id for task in job.tasks]) for job in log.jobs] == [
        (4, "collect", [8, 10]),
        (5, "foreachPartition", [9]),
    ]
    assert [job.end_ns for job in log.jobs] == [None, 1_008_000]


def test_uploads_end_also_with_a_dead_driver_and_spaces_in_paths() -> None:
    target = "hdfs://127.0.0.1:9000/user/a/.sparkStaging/application_1_1/py4j.zip"
    log = spark.driver(parsed("x", f"Uploading resource file:/a/py4j.zip -> {target}"))
    assert [(line.at_ns, path, after) for line, path, after in log.uploads] == [
        (1_001_000, "/user/a/.sparkStaging/application_1_1/py4j.zip", 1_001_000)
    ]
    said = "Uploading resource file:/a path/with -> arrow/py4j.zip -> hdfs://127.0.0.1:9000/user/a b/py4j.zip"
    assert [path for _, path, _ in spark.driver(parsed("x", said)).uploads] == ["/user/a b/py4j.zip"]


def test_errors_are_in_order_and_cut_lines_left_out() -> None:
    log = spark.driver([*parsed("fine"), *parsed("first", "second", level="ERROR")])
    assert log.errors == ["first", "second"]
    log = spark.executor(parsed("Got assigned task 3", "Finished task 0.0 in stage 1.0 (TI", "Got assigned task "))
    assert (list(log.got), log.finished) == ([3], {})
    name = "container_e01_1795230150220_0001_01_000004"
    log = spark.application_master(
        parsed(
            f"Launching container {name} on host node-3.example.org for executor with ID 12 for ResourceProfile Id 0"
        )
    )
    assert log.containers == {"12": name}


LINES = (DATA / "event-log.jsonl").read_text().splitlines()

SAME = """executorRunTime executorCpuTime executorDeserializeTime executorDeserializeCpuTime resultSize jvmGCTime
resultSerializationTime memoryBytesSpilled diskBytesSpilled"""
SPARKS_NAMES = {name: name for name in SAME.split()}
SPARKS_NAMES |= {"bytesRead": "input.bytesRead", "recordsRead": "input.recordsRead"}


def found(lines: list[str]) -> dict[str, Any]:
    metrics = plain(spark_metrics(event_log.parse(lines)))
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
    assert spark_metrics(event_log.EventLog()) is None
    native = Evidence(DATA / "native-run")
    assert spark_metrics(native.event_log) is None
    assert found(["", LINES[0], LINES[1][:200]])["metrics"]["numTasks"] == 1
    quick = Evidence(DATA / "quick-run")
    metrics = plain(spark_metrics(replace(quick.event_log, stage_calls={})))
    assert {stage["call"] for stage in metrics["stages"]} == {None}
    assert metrics["metrics"]["recordsRead"] == 6000 // 100  # records of 100 samples
