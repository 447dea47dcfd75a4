"""Several SparkContexts in one script: each application is on the wall, with executors, jobs and stages of its own."""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect_left
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.own_job import from_dict
from dlobd.recompute import computed as record
from tests.captured import Captured, copy_of, note_sizes

FIRST, SECOND = "1795717270784_0023", "1795717270784_0024"
BEGIN_NS, END_NS = 31138984281930, 31168705366358
"""The time of own-run from its SparkSession until after its SparkContext was stopped."""
LATER_NS = END_NS - BEGIN_NS + 10**9
"""The second application does the same, so much later."""
SPANS = 97
"""Spans of the driver from BEGIN_NS on."""


def moved(text: str) -> str:
    """Return lines of the second application from lines of the first: of log4j, its status log, and a JVM's own log."""

    def line(match: re.Match[str]) -> str:
        own, wall = int(match[1] or 0) + LATER_NS, datetime.fromisoformat(match[2][:26])
        later = (wall + timedelta(microseconds=LATER_NS // 1000)).isoformat(timespec="microseconds")
        return f"{own} {later[:-3]}" if match[1] else later

    text = re.sub(r"^(?:(\d{6,19}) )?(\d{4}-\d\d-\d\dT[\d:.]+)", line, text, flags=re.MULTILINE)
    text = re.sub(r"^\[(\d+)ns\]", lambda match: f"[{int(match[1]) + LATER_NS}ns]", text, flags=re.MULTILINE)
    return text.replace(FIRST, SECOND)


def moved_span(line: dict[str, Any]) -> dict[str, Any]:
    times = ("t", "opened_ns", "start_ns", "monotonic_ns", "wall_ns")
    return line | {key: line[key] + LATER_NS for key in times if line.get(key) is not None}


def twice(path: Path) -> Path:
    """Repeat the application in a copy of own-run, as a script does that creates a second SparkContext."""
    for log in [*(path / files.DAEMON_LOGS).iterdir()]:
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(sorted([*lines, *(moved(line) for line in lines if FIRST in line)])))
    stderr = path / files.DRIVER_STDERR
    lines = stderr.read_text().splitlines(keepends=True)
    begun, stopped = (
        next(at for at, line in enumerate(lines) if text in line)
        for text in ("Running Spark version", "Successfully stopped SparkContext")
    )
    stderr.write_text("".join([*lines[: stopped + 1], *map(moved, lines[begun:])]))
    for source in [*path.glob("logs/containers/*/*"), *path.glob("spans/container_*/*")]:
        target = source.parent.with_name(source.parent.name.replace(FIRST, SECOND)) / source.name
        target.parent.mkdir(exist_ok=True)
        spans = source.suffix == ".jsonl"
        lines = [json.dumps(moved_span(json.loads(line))) for line in source.read_text().splitlines() if spans]
        target.write_text("".join(f"{line}\n" for line in lines) if spans else moved(source.read_text()))
    _repeat_spans(path)
    (path / "evidence" / "2").mkdir()
    for name in (files.EVENT_LOG, files.RM_APPLICATION):
        (path / files.of_application(name, 2)).write_text((path / name).read_text().replace(FIRST, SECOND))
    second = json.loads((path / "evidence" / "2" / "rm-app.json").read_text())
    second |= {key: second[key] + LATER_NS // 10**6 for key in ("startedTime", "finishedTime", "launchTime")}
    (path / "evidence" / "2" / "rm-app.json").write_text(json.dumps(second))
    window = json.loads((path / files.WINDOW).read_text())
    window["anchors"][1] = moved_span(window["anchors"][1])
    window["exit_ns"] += LATER_NS
    window["applications"] = [f"application_{FIRST}", f"application_{SECOND}"]
    (path / files.WINDOW).write_text(json.dumps(window))
    jvm = path / files.DRIVER_JVM_LOG
    jvm.write_text(re.sub(r"^.*gc,heap,exit.*$", lambda match: moved(match[0]), jvm.read_text(), flags=re.MULTILINE))
    note_sizes(path)
    return path


def _repeat_spans(path: Path) -> None:
    (spans,) = (path / "spans" / "driver").iterdir()
    *lines, cost = (json.loads(line) for line in spans.read_text().splitlines())
    kept = [line for line in lines if line["k"] not in ("u", "cost")]
    times = [line.get("t", line.get("monotonic_ns", 0)) for line in kept]
    begun, ended = bisect_left(times, BEGIN_NS), next(n for n, at_ns in enumerate(times) if at_ns >= END_NS)
    again = [moved_span(line) for line in kept[begun:ended]]
    again = [line | {key: line[key] + SPANS for key in ("i", "p") if line.get(key, 0) >= 5} for line in again]
    after = [moved_span(line) for line in kept[ended:]]
    made = [*kept[:ended], *json.loads(json.dumps(again).replace(FIRST, SECOND)), *after]
    spans.write_text("".join(json.dumps(line) + "\n" for line in [*made, cost | {"lines": len(made)}]))


def computed(path: Path) -> dict[str, Any]:
    return record.computed(Bundle(path), from_dict(Captured.stored("own-run")["configuration"])).to_json()


def test_both_applications_are_on_the_wall(tmp_path: Path) -> None:
    found, before = computed(twice(copy_of("own-run", tmp_path))), Captured.computed("own-run")
    assert (found["status"], found["reason"]) == ("ok", None)
    assert [line for line in found["warnings"] if line.startswith("missing: ")] == []
    assert f"the script created 2 applications: application_{FIRST}, application_{SECOND}" in found["warnings"]
    assert {clip["kind"] for clip in found["clips"]} & {"inconsistent", "cycle"} == set()
    layers, once = ({row["layer"]: row for row in run["layers"]} for run in (found, before))
    assert sum(row["ns"] for row in layers.values()) + found["unattributed_ns"] == found["wall_ns"]
    assert found["unattributed_ns"] == before["unattributed_ns"]
    # the second application is as the first, and what was before it is not repeated
    for layer in ("yarn", "hdfs"):
        assert layers[layer]["ns"] == pytest.approx(2 * once[layer]["ns"], rel=0.02)
    assert dict(layers["spark"]["names"])["job collect"] == 2 * dict(once["spark"]["names"])["job collect"]
    assert {check["verdict"] for check in found["checks"]} == {check["verdict"] for check in before["checks"]}


def test_executors_jobs_and_stages_are_those_of_their_application(tmp_path: Path) -> None:
    evidence = Evidence(twice(copy_of("own-run", tmp_path)))
    first, second = evidence.applications
    assert [one.window["application_id"] for one in (first, second)] == [
        f"application_{FIRST}", f"application_{SECOND}",
    ]  # fmt: skip
    assert sorted(evidence.executor_containers) == ["1", "2", "2.1", "2.2"]
    assert evidence.executor_containers["2.1"] == evidence.executor_containers["1"].replace(FIRST, SECOND)
    assert sorted(second.driver.log.registered) == ["2.1", "2.2"]
    assert [job.id for job in evidence.driver.log.jobs] == 2 * [job.id for job in first.driver.log.jobs]
    assert {task.executor for job in second.driver.log.jobs for task in job.tasks} == {"2.1", "2.2"}
    assert len(evidence.event_log.tasks) == 2 * len(first.event_log.tasks)
    stages = {task.stage for task in evidence.event_log.tasks}
    assert len(stages) == 2 * len({task.stage for task in first.event_log.tasks})
    assert stages <= evidence.event_log.stage_calls.keys()
    assert second.rm_app["id"] == f"application_{SECOND}"
    assert second.yarn.application.at["FINISHED"] == first.yarn.application.at["FINISHED"] + LATER_NS


@pytest.mark.parametrize(
    "name",
    [
        f"{files.CONTAINER_LOGS}/container_{SECOND}_01_000001/stderr",
        f"{files.CONTAINER_LOGS}/container_{SECOND}_01_000002/stderr",
        "evidence/2/rm-app.json",
        "evidence/2/event-log.jsonl",
    ],
)
def test_missing_evidence_of_the_second_is_named(tmp_path: Path, name: str) -> None:
    path = twice(copy_of("own-run", tmp_path))
    (path / name).unlink()
    note_sizes(path)
    lines = [line for line in computed(path)["warnings"] if line.startswith("missing: ")]
    assert any(name.removesuffix("/stderr") in line for line in lines), lines
    assert not any(FIRST in line for line in lines)


def test_a_context_that_could_not_be_created_is_no_application(tmp_path: Path) -> None:
    """Spark logs its version before it checks the settings."""
    path = copy_of("own-run", tmp_path)
    stderr = path / files.DRIVER_STDERR
    lines = stderr.read_text().splitlines(keepends=True)
    begun = next(at for at, line in enumerate(lines) if "Running Spark version" in line)
    stderr.write_text("".join([*lines[: begun + 1], *lines[begun:]]))
    note_sizes(path)
    evidence = Evidence(path)
    assert evidence.applications == [evidence]
    assert computed(path)["status"] == "ok"


def test_the_first_application_may_be_local(tmp_path: Path) -> None:
    path = twice(copy_of("own-run", tmp_path))
    (spans,) = (path / "spans" / "driver").iterdir()
    text = spans.read_text().replace(f"application_{FIRST}", "local-1795719540000")
    spans.write_text(text.replace('"master": "yarn"', '"master": "local[2]"', 1))
    window = json.loads((path / files.WINDOW).read_text()) | {"application_id": f"application_{SECOND}"}
    (path / files.WINDOW).write_text(json.dumps(window | {"applications": [f"application_{SECOND}"]}))
    stderr = path / files.DRIVER_STDERR
    stderr.write_text(re.sub(rf"^.*(?:yarn|cluster)\.\w+.*{FIRST}.*\n", "", stderr.read_text(), flags=re.MULTILINE))
    for name in (files.EVENT_LOG, files.RM_APPLICATION):
        (path / files.of_application(name, 2)).replace(path / name)
    for directory in [*path.glob(f"*/container_{FIRST}*"), *path.glob(f"*/*/container_{FIRST}*")]:
        shutil.rmtree(directory)
    note_sizes(path)
    evidence = Evidence(path)
    assert [one.topology.placement.name for one in evidence.applications] == ["LOCAL", "YARN_CLIENT"]
    assert evidence.topology.placement.name == "YARN_CLIENT"
    assert sorted(evidence.executor_containers) == ["1", "2"]
    assert evidence.applications[1].application_lane == "application"
