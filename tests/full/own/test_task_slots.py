"""Own jobs with several tasks per executor, with executors that come and go, and with lost work."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

JOB = str(Path(__file__).parents[2] / "foreign" / "slots.py")


def submitted(dlobd: Any, mode: str, tasks: int, *options: str, **settings: str) -> dict[str, Any]:
    """run.json of a job that ended well, whose task seconds are those of Spark's event log."""
    line = [*options, *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}"))]
    ended = dlobd("submit", "--out", str(dlobd.out), "--", "spark-submit", *line, JOB, mode, str(tasks), within_s=390)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run: dict[str, Any] = ended.bundle.read_json()
    contradicted_ns = sum(clip["ns"] for clip in run["clips"] if clip["kind"] == "inconsistent")
    assert contradicted_ns < 0.01 * run["wall_ns"]
    assert [warning for warning in run["warnings"] if warning.startswith("missing: ")] == []
    agrees(ended.bundle)
    return run


def agrees(bundle: Bundle) -> None:
    """Fails unless dlobd's seconds of task attempts per executor are those that are counted from Spark's event log."""
    evidence = Evidence(bundle.path)
    tasks = [task for job in evidence.driver.log.jobs for task in job.tasks]
    # the driver may stop before it notices the end of the slower attempt
    endless = {task.id for task in tasks if task.end_ns is None and task.lost_ns is None}
    assert all(task.loss == "killed" for task in tasks if task.id in endless)
    counted: Counter[str] = Counter()
    for line in (bundle.path / files.EVENT_LOG).read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Task ID"] not in endless:
            info = event["Task Info"]
            counted[info["Executor ID"]] += info["Finish Time"] - info["Launch Time"]
    logged: Counter[str] = Counter()
    for task in tasks:
        if task.id not in endless:
            logged[task.executor] += (task.end_ns or task.lost_ns or 0) - task.start_ns
    # on a busy machine a line of the driver's log follows its event by up to 0.3 s
    assert {name: ns / 1e6 for name, ns in logged.items()} == pytest.approx(counted, rel=0.01, abs=300)
    spans: Counter[str] = Counter()
    for span in assemble(evidence).spans:
        if span.kind in (kinds.TASK, kinds.REPORT_TASK) and span.attrs.get("task") not in endless:
            spans[span.lane.partition("/")[0].removeprefix("executor-")] += span.end_ns - span.start_ns
    # the next task of a slot may begin before the driver handles the result of a task
    assert {name: ns / 1e6 for name, ns in spans.items()} == pytest.approx(counted, rel=0.02, abs=300)


def lanes(dlobd: Any) -> set[str]:
    spans = assemble(Evidence(dlobd.newest().path)).spans
    return {span.lane for span in spans if span.kind is kinds.TASK}


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_four_tasks_per_executor(dlobd, mode) -> None:
    options = "--num-executors", "2", "--executor-cores", "4", "--deploy-mode", mode
    run = submitted(dlobd, "slots", 16, *options)
    assert run["lost_work"] == []
    assert lanes(dlobd) == {f"executor-{n}{slot}" for n in (1, 2) for slot in ("", "/slot-2", "/slot-3", "/slot-4")}


@pytest.mark.parametrize("decommission", ["false", "true"])
def test_executors_come_and_go(dlobd, decommission) -> None:
    """From one to three executors and back to one; the last may still start when the job has ended."""
    chosen = {"enabled": "true", "minExecutors": "1", "maxExecutors": "3", "executorIdleTimeout": "4s"}
    settings = {f"spark.dynamicAllocation.{key}": value for key, value in chosen.items()}
    run = submitted(dlobd, "dynamic", 30, **settings, **{"spark.decommission.enabled": decommission})
    assert len(lanes(dlobd)) >= 3
    log = Evidence(dlobd.newest().path).driver.log
    assert len(log.removed) >= 2
    assert log.gone == {}
    assert run["lost_work"] == []


def test_lost_work_has_its_own_line(dlobd) -> None:
    """An executor ends with two running tasks, and a task fails twice: Spark's own number of retries suffices."""
    run = submitted(dlobd, "lost", 12, "--num-executors", "2", "--executor-cores", "2")
    attempts = {row["cause"]: row["attempts"] for row in run["lost_work"]}
    assert (attempts["failed"], attempts["executor lost"]) == (2, 2)
    events = (dlobd.newest().path / files.EVENT_LOG).read_text().splitlines()
    ended = [event for event in map(json.loads, events) if event["Event"] == "SparkListenerTaskEnd"]
    infos = [event["Task Info"] for event in ended if event["Task End Reason"]["Reason"] != "Success"]
    seconds = sum(info["Finish Time"] - info["Launch Time"] for info in infos) / 1e3
    assert sum(row["ns"] for row in run["lost_work"]) / 1e9 == pytest.approx(seconds, rel=0.01)
    assert [row["messages"] for row in run["lost_work"]] == [[], ["ValueError: a transient failure"]]


def test_a_speculative_copy_wins(alone) -> None:
    """The copy runs on another host; the slow attempt is killed. Other tasks may have copies, too."""
    assert alone("cluster", "up", "--hosts", "127.0.0.2,127.0.0.3").code == 0
    try:
        chosen = {"quantile": "0.5", "multiplier": "1.2", "interval": "100ms"}
        settings = {"spark.speculation": "true"} | {f"spark.speculation.{key}": value for key, value in chosen.items()}
        # only one executor fits into a NodeManager
        big = "--executor-memory", "2500m", "--num-executors", "2", "--executor-cores", "2"
        run = submitted(alone, "copy", 8, *big, **settings)
    finally:
        assert alone("cluster", "down").code == 0
    assert {row["cause"] for row in run["lost_work"]} == {"killed"}
