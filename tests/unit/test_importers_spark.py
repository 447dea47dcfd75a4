"""Spark's logs of driver, ApplicationMaster and executors, with real lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlobd.evidence import log4j, spark
from dlobd.evidence.evidence import Evidence

DATA = Path(__file__).parents[1] / "data"


def parsed(*messages: str, level: str = "INFO", start: int = 1_000_000) -> Sequence[log4j.LogLine]:
    text = [f"{start + 1_000 * k} 2026-11-21T03:02:40.666 {level} a.B: {m}\n" for k, m in enumerate(messages)]
    return list(log4j.parse(text, "log"))


STARTING = (
    "Starting task {n}.0 in stage {stage}.0 (TID {tid}) (localhost,executor {executor}, partition 0, ANY, 9 bytes) "
)


def test_a_failed_task_ended_too() -> None:
    executors = Evidence(DATA / "killed-trainer").executors
    assert set(executors["2"].got) == set(executors["2"].finished) == {1, 3, 5, 6}
    assert set(executors["1"].got) - set(executors["1"].finished) == {4}


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
