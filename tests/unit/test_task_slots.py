"""Task slots of executors, executors that come and go, and work that Spark did again. Log lines are Spark's own."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.columns import NONE
from dlobd.errors import UsageError
from dlobd.evidence import log4j, slots, spark
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import killed
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.experiment import own_job
from dlobd.measures import user_code
from dlobd.report import sentences
from dlobd.run.submit_command import command_of
from dlobd.schema import Process
from dlobd.timeline.assemble import assemble
from dlobd.timeline.tasks import critical
from tests.captured import copy_of, recomputed
from tests.unit.test_schedulers import TARGET

MANAGER = "scheduler.TaskSetManager [dispatcher-CoarseGrainedScheduler]"
STARTING = "Starting task {} in stage 0.0 (TID {}) (localhost,executor {}, partition 0, PROCESS_LOCAL, 9686 bytes)"
FINISHED = "Finished task {} in stage 0.0 (TID {}) in 4853 ms on localhost (executor {}) (1/8)"


def log_of(*messages: str, logger: str = MANAGER) -> list[log4j.LogLine]:
    """Lines of a log, 1 s apart from 1 s on."""
    lines = [f"{k}000000000 2026-11-27T02:34:58.180 INFO {logger}: {m}\n" for k, m in enumerate(messages, 1)]
    return list(log4j.parse(lines, "log"))


def driver(*messages: str) -> spark.DriverLog:
    job = ("Got job 0 (collect at a.py:1) with 8 output partitions", "Submitting ResultStage 0 (PythonRDD[1]), which")
    return spark.driver(log_of(*job, *messages))


def task(id_: int, start_ns: int, end_ns: int | None = None, executor: str = "1") -> spark.Task:
    return spark.Task(id_, 0, executor, start_ns, end_ns, id_)


def test_a_task_takes_the_first_free_slot() -> None:
    tasks = [task(0, 0, 500_000), task(1, 10), task(2, 510_000), task(3, 600_000)]
    # the executor's log may have the end of a task slightly after the driver's log has the start of the next
    assert slots.number(tasks, {0: 511_000, 1: 580_000}, None) == {0: 1, 1: 2, 2: 1, 3: 2}


def test_a_task_without_an_end_keeps_its_slot_until_its_executor_is_gone() -> None:
    tasks = [task(0, 0), task(1, 10), task(2, 900_000_000)]
    assert slots.number(tasks, {1: 20}, None) == {0: 1, 1: 2, 2: 2}
    tasks[0].lost_ns = 5_000_000
    assert slots.number(tasks, {1: 20}, None) == {0: 1, 1: 2, 2: 1}
    assert slots.number([task(0, 0), task(1, 10), task(2, 5_000_000)], {}, 2_000_000) == {0: 1, 1: 2, 2: 1}


def test_a_span_of_a_python_worker_belongs_to_its_task_or_to_the_next() -> None:
    def span(number: int, start_ns: int, parent: int = 0, **attrs: int) -> RecordedSpan:
        return RecordedSpan(number, parent, "user", "x", start_ns, start_ns + 5, False, {}, attrs, "")

    spans = [span(1, 0), span(2, 10, task_attempt=7), span(3, 12, parent=2), span(4, 20), span(5, 30, task_attempt=9)]
    process = RecordedProcess(
        Process("h", "python-worker", 0, 7), "d", 0, True, Path("x"), 1000, RecordedSpans.of(spans)
    )
    assert slots.Served(process).at(np.array([-1, 0, 12, 21, 99])).tolist() == [7, 7, 7, 9, 9]
    process.spans = RecordedSpans.of(spans[3:4])
    assert slots.Served(process).at(np.array([20])).tolist() == [NONE]


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("(localhost executor 1): ExecutorLostFailure (executor 1 exited caused by one of the", "executor lost"),
        ("(10.0.0.7 executor 1): TaskKilled (another attempt succeeded)", "killed"),
        ("(localhost executor 1): org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An e", "failed"),
        ("on localhost, executor 1: org.apache.spark.api.python.PythonException (a) [duplicate 1]", "failed"),
    ],
)
def test_the_driver_gives_up_an_attempt(line: str, loss: str) -> None:
    lost = f"Lost task 3.0 in stage 0.0 (TID 3) {line}"
    begun = STARTING.format("3.0", 3, 1), lost, STARTING.format("3.1", 5, 2), FINISHED.format("3.1", 5, 2)
    log = driver(*begun)
    first, second = log.jobs[0].tasks
    assert (first.loss, first.lost_ns, first.end_ns) == (loss, 4_000_000_000, None)
    assert (second.loss, second.end_ns) == (None, 6_000_000_000)
    (row,) = rows(log)
    assert (row.cause, row.attempts, row.ns) == (loss, 1, 1_000_000_000)
    message = "; KeyError: 7" if loss == "failed" else ""
    said = sentences.lost_work([row])
    assert said == f"Lost work: 1.0 s in 1 task attempt without a used result: 1 {loss}{message}"


def rows(log: spark.DriverLog, finished: dict[int, int] | None = None) -> Any:
    logs = {"2": spark.ExecutorLog(finished=finished or {})}
    evidence: Any = SimpleNamespace(
        driver=SimpleNamespace(log=log),
        executors=logs,
        topology=SimpleNamespace(has_spark=True, user_script=True),
        event_log=SimpleNamespace(exceptions=['Traceback (most recent call last):\n  File "w.py"\nKeyError: 7'] * 2),
    )
    return user_code.lost_work(evidence)


def test_a_result_that_was_lost_is_computed_again() -> None:
    """An executor with output of a shuffle ended: the stage ran again. An attempt without a known end has no time."""
    log = driver(STARTING.format("3.0", 3, 1), FINISHED.format("3.0", 3, 1))
    again = STARTING.format("3.0", 6, 2), FINISHED.format("3.0", 6, 2)
    assert rows(log) == ()
    log = driver(STARTING.format("3.0", 3, 1), FINISHED.format("3.0", 3, 1), *again)
    assert [(row.cause, row.ns) for row in rows(log)] == [("computed again", 1_000_000_000)]
    log = driver(STARTING.format("3.0", 3, 1), *again)
    assert [(row.cause, row.ns) for row in rows(log)] == [("executor lost", None)]
    assert sentences.lost_work(rows(log)).startswith("Lost work: unknown time in 1 task attempt ")


def test_the_driver_may_stop_before_an_attempt_that_it_kills_ends() -> None:
    killing = "Killing attempt 0 for task 0.0 in stage 0.0 (TID 0) on 127.0.0.2 as the attempt 1 succeeded on 127.0.0.3"
    begun = STARTING.format("0.0", 0, 2), STARTING.format("0.1", 8, 1)
    log = driver(*begun, killing, FINISHED.format("0.1", 8, 1))
    assert [(row.cause, row.ns) for row in rows(log)] == [("killed", None)]
    assert [(row.cause, row.ns) for row in rows(log, {0: 7_500_000_000})] == [("killed", 4_500_000_000)]


def test_an_executor_may_interrupt_and_kill_a_task() -> None:
    line = "Executor interrupted and killed task 0.0 in stage 0.0 (TID 4), reason: another attempt succeeded"
    assert spark.executor(log_of(line)).finished == {4: 1_000_000_000}


def test_removed_and_unregistered_executors_may_have_incomplete_logs() -> None:
    log = driver(
        "Registered executor NettyRpcEndpointRef(spark-client://Executor) (127.0.0.1:1) with ID 1, ResourceProfileId 0",
        "Registered executor NettyRpcEndpointRef(spark-client://Executor) (127.0.0.1:2) with ID 2, ResourceProfileId 0",
        "Registered executor NettyRpcEndpointRef(spark-client://Executor) (127.0.0.1:3) with ID 3, ResourceProfileId 0",
        "Executor 1 on localhost killed by driver.",
        "Executor 2 on localhost is decommissioned after 2.5 s.",
    )
    assert (log.removed.keys(), log.gone) == ({"1", "2"}, {})
    containers = {"1": "a", "2": "b", "3": "c", "4": "still starting"}
    logs = {name: spark.ExecutorLog() for name in containers}
    found: Any = SimpleNamespace(driver=SimpleNamespace(log=log), executors=logs, executor_containers=containers)
    found.lost_containers = ["attempt 1"]
    assert killed(found) == {"a", "b", "still starting", "attempt 1"}


def test_a_job_waits_for_the_start_of_an_executor_that_it_needs() -> None:
    first, second = task(0, 60, 80), task(1, 90, 99, "2")
    job = spark.Job(0, "j", 10, 99, tasks=[first, second])
    links = critical([job], {"1": {0: 79}, "2": {1: 98}}, 1000, {}, {"1": 55, "2": 85})
    assert [(one.start_ns, one.end_ns, one.starts) for one in links] == [
        (90, 98, False),
        (79, 85, True),
        (60, 79, False),
        (10, 55, True),
    ]


def two_slots(directory: Path) -> Path:
    """The captured own run, with all its tasks in executor 1, which has two task slots."""
    path = copy_of("own-run", directory)
    first, second = sorted(path.glob("logs/containers/*_00000[23]"))
    log = path / files.DRIVER_STDERR
    log.write_text(re.sub(r"(\(TID .*executor) 2\b", r"\1 1", log.read_text()))
    moved = [
        line for line in (second / "stderr").read_text().splitlines(keepends=True) if "TID" in line or "Got" in line
    ]
    lines = [*(first / "stderr").read_text().splitlines(keepends=True), *moved]
    stamped = [line for line in lines if re.match(r"\d{10}", line)]
    rest = [line for line in lines if line not in stamped]
    (first / "stderr").write_text("".join([*rest, *sorted(stamped, key=lambda line: int(line.split()[0]))]))
    text = (second / "stderr").read_text()
    (second / "stderr").write_text("".join(line for line in text.splitlines(keepends=True) if line not in moved))
    daemon = min((path / "spans" / first.name).iterdir())
    for file in (path / "spans" / second.name).iterdir():
        if '"forked":true' in (text := file.read_text()):  # the workers are forked by the daemon of executor 1
            parent = re.sub(r'"parent":\d+', f'"parent":{daemon.name.split("-")[1]}', text, count=1)
            (path / "spans" / first.name / file.name).write_text(parent)
        file.unlink()
    events = path / files.EVENT_LOG
    events.write_text(re.sub(r'("Executor ID": ?)"2"', r'\1"1"', events.read_text()))
    (spans,) = (path / "spans" / "driver").iterdir()
    text = spans.read_text()
    assert '"slots":1' in text
    spans.write_text(text.replace('"slots":1', '"slots":2'))
    return path


def test_concurrent_tasks_have_lanes_of_their_own(tmp_path: Path) -> None:
    path = two_slots(tmp_path)
    trace = assemble(Evidence(path))
    found = attribute(trace)
    assert sum(layer.ns for layer in found.layers) + found.unattributed_ns == trace.wall_ns
    assert {clip.kind for clip in found.clips} & {"inconsistent", "cycle"} == set()
    tasks = [span for span in trace.spans if span.kind is kinds.TASK]
    assert {span.lane for span in tasks} == {"executor-1", "executor-1/slot-2"}
    by_lane = {lane: [s for s in tasks if s.lane == lane] for lane in ("executor-1", "executor-1/slot-2")}
    for own in by_lane.values():  # in a slot, one task follows the other
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(own))
    # the user's code is in the slot of its task
    code = [span for span in trace.spans if span.kind is kinds.USER_CODE and span.lane.startswith("executor-1")]
    assert code
    for span in code:
        around = next(s for s in tasks if s.attrs["task"] == span.attrs["task_attempt"])
        assert span.lane == around.lane
        assert around.start_ns < span.start_ns < span.end_ns < around.end_ns
    # a job waits for the lane of its last task
    waits = [span for span in trace.spans if span.kind is kinds.WAIT_FOR_TASKS]
    assert {lane for wait in waits for lane in wait.waits_for} == {"executor-1", "executor-1/slot-2"}


def test_task_seconds_agree_with_the_event_log(tmp_path: Path) -> None:
    path = two_slots(tmp_path)
    counted: Counter[str] = Counter()
    for line in (path / files.EVENT_LOG).read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            counted[info["Executor ID"]] += info["Finish Time"] - info["Launch Time"]
    spans = [s for s in assemble(Evidence(path)).spans if s.kind in (kinds.TASK, kinds.REPORT_TASK)]
    seconds = sum(span.end_ns - span.start_ns for span in spans) / 1e9
    assert counted.keys() == {"1"}
    assert seconds == pytest.approx(counted["1"] / 1e3, rel=0.01)
    checks = {check["code"]: check["verdict"] for check in recomputed(Bundle(path))["checks"]}
    assert checks["task-seconds"] == "pass"
    assert "fail" not in checks.values()
    events = path / files.EVENT_LOG
    whole = events.read_text()
    late = re.sub(r'(?<="Finish Time":)\d+', lambda of: str(int(of[0]) + 900), whole)
    events.write_text(late)
    checks = {check["code"]: check["verdict"] for check in recomputed(Bundle(path))["checks"]}
    assert checks["task-seconds"] == "unknown"  # of several tasks, each is 0.9 s apart
    events.write_text(whole)
    log = path / files.DRIVER_STDERR
    log.write_text(re.sub(r"Starting task (.*executor) 1,", r"Starting task \1 2,", log.read_text(), count=1))
    checks = {check["code"]: check["verdict"] for check in recomputed(Bundle(path))["checks"]}
    assert checks["task-seconds"] == "fail"


def test_a_users_job_keeps_retries_slots_and_dynamic_allocation(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("")

    def words(*options: str) -> tuple[str, ...]:
        job = own_job.from_line(["spark-submit", *options, str(script)])
        return command_of(job, TARGET, tmp_path / "bundle").argv

    plain = words("--executor-cores", "4")
    keys = {word.partition("=")[0] for word in plain}
    assert keys & {"spark.task.cpus", "spark.task.maxFailures", "spark.executor.maxNumFailures"} == set()
    assert "spark.dynamicAllocation.enabled" not in keys
    assert "--num-executors" in plain
    assert "--num-executors" not in words("--conf", "spark.dynamicAllocation.enabled=true")


@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        ((), 1),
        (("spark.dynamicAllocation.minExecutors=0",), 1),
        (("spark.dynamicAllocation.initialExecutors=3", "spark.dynamicAllocation.minExecutors=2"), 3),
        (("spark.executor.instances=4", "spark.dynamicAllocation.initialExecutors=3"), 4),
    ],
)
def test_the_first_executors_of_dynamic_allocation(tmp_path: Path, settings: tuple[str, ...], workers: int) -> None:
    script = tmp_path / "job.py"
    script.write_text("")
    options = [word for one in ("spark.dynamicAllocation.enabled=true", *settings) for word in ("--conf", one)]
    assert own_job.from_line(["spark-submit", *options, str(script)]).workers == workers
    if not settings:
        with pytest.raises(UsageError, match=r"--set workers: spark\.dynamicAllocation\.enabled=true lets"):
            own_job.from_line(["spark-submit", *options, str(script)], ["workers=2"])
