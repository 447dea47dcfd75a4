"""Several SparkContexts in one script: each application is on the wall, with executors, jobs and stages of its own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
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

_STAMP = re.compile(r"^(\d{6,19}) (\S+?)(?= [A-Z]+ )", re.MULTILINE)
_STATUS = re.compile(r"^(\d{4}-\d\d-\d\dT\S+)Z ", re.MULTILINE)


def moved(text: str) -> str:
    """Return lines of the second application from lines of the first."""

    def stamp(match: re.Match[str]) -> str:
        return f"{int(match[1]) + LATER_NS} {wall(match[2], 3)}"

    text = _STATUS.sub(lambda match: f"{wall(match[1], 6)}Z ", _STAMP.sub(stamp, text))
    text = re.sub(r"^\[(\d+)ns\]", lambda match: f"[{int(match[1]) + LATER_NS}ns]", text, flags=re.MULTILINE)
    return text.replace(FIRST, SECOND)


def wall(text: str, digits: int) -> str:
    # the fraction of log4j's status log may have nine digits
    at = datetime.fromisoformat(text[:26]) + timedelta(microseconds=LATER_NS // 1000)
    return at.isoformat(timespec="milliseconds" if digits == 3 else "microseconds")


def moved_line(line: dict[str, Any]) -> dict[str, Any]:
    times = ("t", "opened_ns", "start_ns", "monotonic_ns", "wall_ns")
    return line | {key: line[key] + LATER_NS for key in times if line.get(key) is not None}


def at_ns(line: str) -> int:
    match = re.match(r"\d{6,19}", line)
    return int(match[0]) if match else 0


def twice(path: Path, known: bool = True) -> Path:
    """Repeat the application in a copy of own-run. `known`: the window has the IDs of both."""
    for log in [*(path / files.DAEMON_LOGS).iterdir()]:
        lines = log.read_text().splitlines(keepends=True)
        again = [moved(line) for line in lines if FIRST in line]
        log.write_text("".join(sorted(lines + again, key=at_ns)))
    stderr = path / files.DRIVER_STDERR
    lines = stderr.read_text().splitlines(keepends=True)
    begun = next(at for at, line in enumerate(lines) if "Running Spark version" in line)
    ended = next(at for at, line in enumerate(lines) if "Successfully stopped SparkContext" in line) + 1
    stderr.write_text("".join([*lines[:ended], *map(moved, lines[begun:ended]), *map(moved, lines[ended:])]))
    for container in [*(path / files.CONTAINER_LOGS).iterdir()]:
        for source in container.iterdir():
            target = path / files.CONTAINER_LOGS / container.name.replace(FIRST, SECOND) / source.name
            target.parent.mkdir(exist_ok=True)
            target.write_text(moved(source.read_text()))
    for source in [*(path / "spans").glob("container_*/*")]:
        target = path / "spans" / source.parent.name.replace(FIRST, SECOND) / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_text(
            "".join(json.dumps(moved_line(json.loads(line))) + "\n" for line in source.read_text().splitlines())
        )
    driver(path)
    (path / "evidence" / "2").mkdir()
    for name in (files.EVENT_LOG, files.RM_APPLICATION):
        (path / files.of_application(name, 2)).write_text((path / name).read_text().replace(FIRST, SECOND))
    record_ = json.loads((path / "evidence" / "2" / "rm-app.json").read_text())
    record_ |= {key: record_[key] + LATER_NS // 10**6 for key in ("startedTime", "finishedTime", "launchTime")}
    (path / "evidence" / "2" / "rm-app.json").write_text(json.dumps(record_))
    window = json.loads((path / files.WINDOW).read_text())
    window["anchors"][1] = moved_line(window["anchors"][1])
    window["exit_ns"] += LATER_NS
    if known:
        window["applications"] = [f"application_{FIRST}", f"application_{SECOND}"]
    (path / files.WINDOW).write_text(json.dumps(window))
    jvm = path / files.DRIVER_JVM_LOG
    jvm.write_text(re.sub(r"^.*gc,heap,exit.*$", lambda m: moved(m[0]), jvm.read_text(), flags=re.MULTILINE))
    note_sizes(path)
    return path


def driver(path: Path) -> None:
    (spans,) = (path / "spans" / "driver").iterdir()
    lines = [json.loads(line) for line in spans.read_text().splitlines()]
    kept = [line for line in lines if line["k"] not in ("u", "cost")]
    before = [line for line in kept if line.get("t", line.get("monotonic_ns", 0)) < BEGIN_NS]
    during = [line for line in kept if BEGIN_NS <= line.get("t", line.get("monotonic_ns", 0)) < END_NS]
    after = [line for line in kept if line.get("t", line.get("monotonic_ns", 0)) >= END_NS]
    again = []
    for line in map(moved_line, during):
        for key in ("i", "p"):
            if line.get(key, 0) >= 5:
                line[key] += SPANS
        again.append(json.loads(json.dumps(line).replace(FIRST, SECOND)))
    made = [*before, *during, *again, *map(moved_line, after)]
    cost = next(line for line in reversed(lines) if line["k"] == "cost") | {"lines": len(made)}
    spans.write_text("".join(json.dumps(line) + "\n" for line in [*made, cost]))


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
    assert layers["spark"]["unexplained_ns"] == pytest.approx(2 * once["spark"]["unexplained_ns"], rel=0.1, abs=10**7)
    names = {name: ns for row in layers.values() for name, ns in row["names"]}
    first = {name: ns for row in once.values() for name, ns in row["names"]}
    for name in ("user code", "localise AM container", "allocate executor container", "job collect"):
        if name in first and name != "user code":
            assert names[name] == pytest.approx(2 * first[name], rel=0.02)
    assert [check for check in found["checks"] if check["verdict"] != "pass"] == [
        check for check in before["checks"] if check["verdict"] != "pass"
    ]


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


def without(path: Path, name: str) -> None:
    (path / name).unlink()
    note_sizes(path)


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        (
            partial(without, name=f"{files.CONTAINER_LOGS}/container_{SECOND}_01_000001/stderr"),
            "container_{}_01_000001",
        ),
        (
            partial(without, name=f"{files.CONTAINER_LOGS}/container_{SECOND}_01_000002/stderr"),
            "container_{}_01_000002",
        ),
        (partial(without, name="evidence/2/rm-app.json"), "evidence/2/rm-app.json"),
        (partial(without, name="evidence/2/event-log.jsonl"), "evidence/2/event-log.jsonl"),
    ],
)
def test_missing_evidence_of_the_second_is_named(tmp_path: Path, damage: Callable[[Path], None], missing: str) -> None:
    path = twice(copy_of("own-run", tmp_path))
    damage(path)
    lines = [line for line in computed(path)["warnings"] if line.startswith("missing: ")]
    assert any(missing.format(SECOND) in line for line in lines), lines
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
