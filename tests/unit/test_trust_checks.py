"""Each check fails for an edit of its source or result, and for no innocent difference."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.search import missing
from dlobd.experiment import files, own_job
from dlobd.record.run import Check, Plane
from dlobd.schema import Clip, Experiment
from dlobd.trust import completeness, training
from dlobd.trust.base import Facts
from dlobd.trust.checks import RULES, checks
from tests.captured import DATA, NAMES, Captured, copy_of, note_sizes

S, MS = 10**9, 10**6
WINDOW, JOB, MARKERS = "evidence/window.json", "evidence/job.json", "evidence/markers.json"
EVENTS, BLOCKS, RM_APP = "evidence/event-log.jsonl", "evidence/blocks.json", "evidence/rm-app.json"
RM, AUDIT = "logs/daemons/resourcemanager.log", "logs/daemons/namenode-audit.log"
SAMPLES = "evidence/resources.jsonl"
TRACE, DRIVER, SPANS = "logs/daemons/datanode-*-clienttrace.log", "logs/driver.stderr", "spans/container_*/*.jsonl"
PUT = r'"n":"put".*?"bytes":(\d+)'
GET = r'"n":"get".*?"bytes":(\d+)'

OTHER = '{"k":"other"}\n'
"""A line of a kind that attribution ignores."""

Edit = int | float | str | None
"""A number is added to the first group of the pattern; a text replaces the line; None removes it."""

EDITS: dict[str, tuple[str, str, Edit, set[str]]] = {
    "the driver's log is empty but for one line": (DRIVER, r"\n(?:.*\n)+", None, {"evidence-complete"}),
    "a rank reports fewer steps": (MARKERS, r'\\"steps\\": (\d+)', -1, {"steps", "steps-recorded"}),
    "a rank reports more samples": (MARKERS, r'\\"samples\\": (\d+)', 100, {"samples", "samples-received"}),
    "the span of a step is lost": (SPANS, r'^.*"n":"step".*\n', OTHER, {"steps-recorded", "spans-read"}),
    "a feed task puts more bytes": (SPANS, PUT, 1, {"feed-put", "feed-taken"}),
    "a rank takes fewer bytes": (SPANS, GET, -838, {"feed-taken", "samples-received"}),
    "an input file is longer": (
        BLOCKS,
        r'"fileLength": (\d+)',
        1,
        {"feed-put", "input-read-by-spark", "input-sent-by-datanodes"},
    ),
    "Spark reads fewer bytes": (EVENTS, r'"Bytes Read":([1-9]\d*)', -83_800, {"input-read-by-spark"}),
    "a DataNode sends a byte more": (TRACE, r"bytes: (25\d{5}), op: HDFS_READ", 1, {"input-sent-by-datanodes"}),
    "HDFS has another checksum": (
        "evidence/checksums.json",
        r'"hdfs": \{\s*"[^"]+": "0+20*(\d)',
        1,
        {"input-checksums"},
    ),
    "the NameNode did not create a file": (
        AUDIT,
        r"^.*cmd=create\t\S*done/\.rank-1\.json.*\n",
        None,
        {"files-written"},
    ),
    "YARN charges more memory": (RM_APP, r'"memorySeconds": (\d+)', 10_000, {"container-memory"}),
    "YARN allocated another container": (RM, r"totalAllocatedContainers=(\d+)", 1, {"containers"}),
    "the application began before spark-submit": (RM, r"startTime=(\d+)", -30_000, {"application-time"}),
    "the application ended much later": (RM, r"finishTime=(\d+)", 40_000, {"application-time"}),
    "the end of a task is lost": (EVENTS, r'^.*TaskEnd.*"Task ID":0,.*\n', None, {"tasks"}),
    "a task reports a longer run time": (EVENTS, r'"Executor Run Time":(\d+)', 60_000, {"task-run-time"}),
    "a span is lost": (SPANS, r'^.*"n":"decode".*\n', OTHER, {"spans-read"}),
    "a span begins before its parent": (SPANS, r'"n":"build","t":(\d+)', -60 * S, {"nesting"}),
    "a rank enters a collective late": (
        SPANS,
        r'"n":"step","t":(\d+).*"rendezvous":"step","call":11\}',
        100 * MS,
        {"collective-order", "nesting"},
    ),
    "a log line has another time": (DRIVER, r"^(\d+) .*SchedulerBackend is ready", 5 * S, {"log-timestamps"}),
    "spark-submit ended earlier": (WINDOW, r'"exit_ns": (\d+)', -5 * S, {"window"}),
    "an executor registers too early": (
        DRIVER,
        r"^(\d+) .*Registered executor",
        -9 * S,
        {"log-timestamps", "message-order"},
    ),
}
"""An edit of the captured quick run: file, pattern, edit, and the codes of the checks that fail."""


def edit(path: Path, name: str, pattern: str, by: Edit) -> None:
    def changed(match: re.Match[str]) -> str:
        if not isinstance(by, int | float):
            return by or ""
        begin, end = match.start(1) - match.start(), match.end(1) - match.start()
        return f"{match[0][:begin]}{int(match[1]) + by}{match[0][end:]}"

    for file in sorted(path.glob(name)):
        old = file.read_text()
        new = re.sub(pattern, changed, old, count=1, flags=re.MULTILINE)
        if new != old:
            file.write_text(new)
            note_sizes(path)
            return
    raise LookupError(f"{pattern} is not in {name}")


def facts_of(path: Path) -> Facts:
    evidence, run = Evidence(path), Bundle(path).read_json()
    return Facts(evidence, own_job.from_dict(run["configuration"]), (), run["wall_ns"], None, missing(evidence))


def of(path: Path) -> dict[str, Check]:
    return {check.code: check for check in checks(facts_of(path))}


def failed(path: Path) -> set[str]:
    return {check.code for check in of(path).values() if check.verdict == "fail"}


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    return copy_of("quick-run", tmp_path)


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_source_fails_its_checks(quick: Path, name: str) -> None:
    file, pattern, by, expected = EDITS[name]
    edit(quick, file, pattern, by)
    assert failed(quick) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_good_run_fails_no_check(captured: Captured, name: str) -> None:
    found = captured.computed(name)["checks"]
    assert found
    verdicts = {check["code"]: check["verdict"] for check in found}
    assert {code for code, verdict in verdicts.items() if verdict != "pass"} == set()
    assert all(check["message"] for check in found)


# ---- a source that is incomplete: unknown


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("logs/daemons/datanode-0-clienttrace.log", {"input-sent-by-datanodes"}),
        (AUDIT, {"files-written"}),
        (EVENTS, {"input-read-by-spark", "tasks"}),
        (RM_APP, {"container-memory"}),
        (SAMPLES, set()),
        ("evidence/page_cache.json", set()),
        ("evidence/noise.json", set()),
    ],
)
def test_a_missing_source_fails_no_check(quick: Path, name: str, unknown: set[str]) -> None:
    (quick / name).unlink()
    assert failed(quick) == set()
    assert unknown <= {check.code for check in of(quick).values() if check.verdict == "unknown"}


@pytest.mark.parametrize("name", ["logs/daemons/datanode-0-clienttrace.log", AUDIT, EVENTS, SAMPLES])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_source_that_stopped_early_fails_no_check(quick: Path, name: str, share: float) -> None:
    """A healthy run stays valid if its sampler, or a log on which the breakdown does not depend, is killed."""
    lines = (quick / name).read_text().splitlines(keepends=True)
    (quick / name).write_text("".join(lines[: round(len(lines) * share)]))
    assert failed(quick) == set()


def test_an_event_log_of_an_unknown_form_is_unknown(quick: Path) -> None:
    (quick / EVENTS).write_text((quick / EVENTS).read_text().replace('"Task Info"', '"Other Info"'))
    assert of(quick)["tasks"].verdict == "unknown"
    assert failed(quick) == set()


# ---- a difference with an innocent explanation: unknown


def test_logs_of_an_external_cluster_may_be_incomplete(quick: Path) -> None:
    (quick / "evidence" / "rm-attempts.json").write_text("[]")
    edit(quick, *EDITS["a DataNode sends a byte more"][:3])
    assert failed(quick) == set()
    check = of(quick)["input-sent-by-datanodes"]
    assert check.verdict == "unknown"
    assert "the cluster is external" in check.message


def test_a_datanode_that_died_explains_other_bytes(quick: Path) -> None:
    daemons = [{"name": "datanode-1", "alive": False, "kind": "datanode", "host": "h", "ports": {}}]
    (quick / "evidence" / "daemons.json").write_text(json.dumps(daemons))
    edit(quick, *EDITS["a DataNode sends a byte more"][:3])
    edit(quick, *EDITS["a rank reports fewer steps"][:3])
    assert of(quick)["input-sent-by-datanodes"].verdict == "unknown"
    assert failed(quick) == {"steps", "steps-recorded"}


@pytest.mark.parametrize(
    "line", ["WARN hdfs.DFSClient: Connection failure", "ERROR cluster.YarnScheduler: Lost executor 1 on host: killed"]
)
def test_a_repeated_read_explains_other_bytes(quick: Path, line: str) -> None:
    log = next(quick.glob("logs/containers/*_000002/stderr")) if "hdfs" in line else quick / DRIVER
    with log.open("a") as file:
        file.write(f"10046757097437 2026-11-21T12:26:48.414 {line}\n")
    edit(quick, *EDITS["a DataNode sends a byte more"][:3])
    assert of(quick)["input-sent-by-datanodes"].verdict == "unknown"


def test_events_that_spark_dropped_are_no_contradiction(quick: Path) -> None:
    edit(quick, *EDITS["the end of a task is lost"][:3])
    with (quick / DRIVER).open("a") as log:
        log.write(
            "10054353771105 2026-11-21T12:26:56.011 WARN scheduler.AsyncEventQueue: "
            "Dropped 12 events from eventLog since the application started.\n"
        )
    assert of(quick)["tasks"].verdict == "unknown"


def test_a_run_by_hand_has_the_window_of_yarn(quick: Path) -> None:
    edit(quick, WINDOW, r'"exec_ns": (\d+)', 5 * S)
    assert {"window", "application-time"} & failed(quick)
    window = json.loads((quick / WINDOW).read_text())
    (quick / WINDOW).write_text(json.dumps(window | {"by_hand": True}))
    assert not {"window", "application-time"} & of(quick).keys()


def test_a_job_that_did_not_end_well_owes_no_sums(quick: Path) -> None:
    """Sums over the whole job do not apply if a rank left nothing, even if spark-submit's exit code is 0."""
    (quick / MARKERS).write_text((quick / MARKERS).read_text().replace("rank-1.json", "other.json"))
    assert failed(quick) <= {"ranks-reported", "evidence-complete"}
    assert "steps" not in of(quick)


def test_the_barrier_launcher_reads_its_input_once(quick: Path) -> None:
    for name, value in (("epochs", 2), ("launcher", "barrier")):
        job = json.loads((quick / JOB).read_text())
        (quick / JOB).write_text(json.dumps(job | {name: value}))
    assert failed(quick) & {"input-read-by-spark", "input-sent-by-datanodes", "feed-put"} == {"feed-put"}


def test_an_application_master_may_leave_after_its_driver(quick: Path) -> None:
    edit(quick, RM, r"finishTime=(\d+)", 3_000)
    assert "application-time" not in failed(quick)
    (quick / JOB).write_text(json.dumps(json.loads((quick / JOB).read_text()) | {"deploy_mode": "cluster"}))
    assert "application-time" in failed(quick)


def test_a_container_that_never_ran_left_no_log(quick: Path) -> None:
    edit(quick, *EDITS["YARN allocated another container"][:3])
    line = (
        "10029000000000 2026-11-21T12:26:30.657 INFO rmcontainer.RMContainerImpl: {} Container Transitioned from {}\n"
    )
    number = json.loads((quick / WINDOW).read_text())["application_id"].removeprefix("application")
    with (quick / RM).open("a") as log:
        log.write(line.format(f"container{number}_01_000009", "NEW to ALLOCATED"))
        log.write(line.format(f"container{number}_01_000009", "ALLOCATED to KILLED"))
    assert "containers" not in failed(quick)


def test_a_container_that_the_end_of_its_application_overtook_is_charged_until_then(quick: Path) -> None:
    log = quick / RM
    log.write_text(
        log.read_text().replace("Transitioned from RUNNING to COMPLETED", "Transitioned from RUNNING to KILLED")
    )
    note_sizes(quick)
    assert of(quick)["container-memory"].verdict == "pass"


def test_a_stepped_wall_clock_moves_no_task(quick: Path) -> None:
    edit(quick, EVENTS, r'"Executor Run Time":(\d+)', 900)
    window = json.loads((quick / WINDOW).read_text())
    window["anchors"][-1]["wall_ns"] -= S
    (quick / WINDOW).write_text(json.dumps(window))
    assert "task-run-time" not in failed(quick)


def test_run_time_counts_each_cpu_of_a_task(quick: Path) -> None:
    """Tasks of two CPUs report almost twice the time that the driver saw (SPARK-51666)."""
    path = quick / EVENTS
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd":
            metrics, info = event["Task Metrics"], event["Task Info"]
            inside_ms = info["Finish Time"] - info["Launch Time"] - metrics["Executor Deserialize Time"]
            metrics["Executor Run Time"] = 2 * inside_ms
    path.write_text("\n".join(map(json.dumps, events)))
    note_sizes(quick)
    assert "task-run-time" in failed(quick)
    requests = {"cpus": {"Resource Name": "cpus", "Amount": 2.0}}
    profile = {
        "Event": "SparkListenerResourceProfileAdded",
        "Resource Profile Id": 0,
        "Task Resource Requests": requests,
    }
    path.write_text("\n".join(map(json.dumps, [profile, *events])))
    note_sizes(quick)
    assert "task-run-time" not in failed(quick)


def test_a_transport_that_was_not_requested_fails() -> None:
    plane = Plane("exchange", "verbs", "rxe0", "", (), True, ("bytes of rxe0",), "verbs", True)
    rule = next(rule for rule in RULES if rule.code == "transport")
    facts = replace(facts_of(DATA / "quick-run"), planes=(plane,))
    check = rule.decide(facts)
    assert check
    assert check.verdict == "pass"
    check = rule.decide(replace(facts, planes=(plane, replace(plane, kind="tcp", agrees=False))))
    assert check
    assert (check.verdict, check.left, check.right) == ("fail", 1, 2)
    assert rule.decide(replace(facts, planes=())) is None


WALL_NS = 10**10
Results = dict[str, dict[str, Any]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "quick-run" / "evidence", tmp_path / "evidence")
    return tmp_path


def main() -> Experiment:
    return files.load("softmax-mnist-quick")


def change(bundle: Path, how: Callable[[Results], None]) -> None:
    path = bundle / "evidence" / "markers.json"
    results = {name: json.loads(text) for name, text in json.loads(path.read_text()).items()}
    how(results)
    path.write_text(json.dumps({name: json.dumps(result) for name, result in results.items()}))


def found(bundle: Path, clips: tuple[Clip, ...] = (), wanted: Experiment | None = None) -> list[Check]:
    facts = Facts(Evidence(bundle), wanted or main(), clips, WALL_NS, None, ())
    rules = (*training.RULES, *completeness.RULES)
    return [check for rule in rules if rule.code != "steps-recorded" and (check := rule.decide(facts))]


def failed_codes(bundle: Path, clips: tuple[Clip, ...] = (), wanted: Experiment | None = None) -> list[str]:
    return [check.code for check in found(bundle, clips, wanted) if check.verdict == "fail"]


def _set(rank: int, key: str, value: Any) -> Callable[[Results], None]:
    def how(results: Results) -> None:
        results[f"rank-{rank}.json"][key] = value

    return how


def _say(*told: dict[str, Any]) -> Callable[[Results], None]:
    def how(results: Results) -> None:
        for rank, said in enumerate(told):
            results[f"rank-{rank}.json"].update(said)

    return how


def _loss(change: Callable[[list[float]], list[float]], *ranks: int) -> Callable[[Results], None]:
    def how(results: Results) -> None:
        for rank in ranks:
            result = results[f"rank-{rank}.json"]
            result["losses"] = change(result["losses"])

    return how


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (lambda results: results.pop("rank-1.json"), ["ranks-reported"]),
        (_set(1, "steps", 29), ["steps"]),
        (_set(0, "samples", 2_900), ["samples"]),
        (_loss(lambda losses: [*losses[:-1], math.nan], 1), ["loss-finite"]),
        (_loss(lambda losses: [math.inf, *losses[1:]], 0), ["loss-finite"]),
        (_loss(lambda losses: [losses[0] + 0.1, *losses[1:]], 1), ["loss-equal"]),
        (_loss(lambda losses: losses[:-1], 1), ["loss-equal"]),
        (_loss(lambda losses: losses[::-1], 0, 1), ["loss-falls"]),
        (_loss(lambda losses: [2.3] * len(losses), 0, 1), ["loss-falls"]),
        (_loss(lambda losses: [], 0, 1), ["loss-falls"]),
        (_set(0, "test", None), ["test-samples"]),
        (_set(0, "test", {"samples": 1_999, "accuracy": 0.9}), ["test-samples"]),
        (_set(0, "test", {"samples": 2_000, "accuracy": 0.1}), ["test-accuracy"]),
        (_set(0, "test", {"samples": 2_000, "accuracy": math.nan}), ["test-accuracy"]),
    ],
)
def test_each_fault_is_found_and_named(bundle: Path, how: Callable[[Results], None], named: list[str]) -> None:
    change(bundle, how)
    assert failed_codes(bundle) == named


def test_figures_are_numbers_that_json_has(bundle: Path) -> None:
    change(bundle, _set(0, "test", {"samples": 2_000, "accuracy": math.nan}))
    check = next(check for check in found(bundle) if check.code == "test-accuracy")
    assert (check.verdict, check.left, check.right) == ("fail", None, main().min_accuracy)
    assert "nan" in check.message


def test_without_results_no_rank_reported(bundle: Path) -> None:
    path = bundle / "evidence" / "markers.json"
    path.write_text(path.read_text()[:-20])
    assert failed_codes(bundle) == ["ranks-reported"]
    path.unlink()
    assert failed_codes(bundle) == ["ranks-reported"]


def test_other_experiments_and_contradictions_fail(bundle: Path) -> None:
    assert failed_codes(bundle, wanted=dataclasses.replace(main(), epochs=2)) == ["steps", "samples"]
    small, large = [Clip("inconsistent", "1", ns) for ns in (WALL_NS // 100, WALL_NS // 100 + 1)]
    assert failed_codes(bundle, (small, Clip("outside window", "2", WALL_NS))) == []
    assert failed_codes(bundle, (large,)) == ["evidence-consistent"]


@pytest.mark.parametrize(
    ("limits", "said", "held"),
    [
        ({"epochs": 10, "max_steps": 30}, {}, True),
        ({"epochs": 10, "max_steps": 31}, {}, False),
        ({"epochs": 10, "max_seconds": 3}, {"loop_ns": 3 * 10**9}, True),
        ({"epochs": 10, "max_seconds": 3}, {"loop_ns": 3 * 10**9 - 1}, False),
        ({"epochs": 10, "target_accuracy": 0.8}, {"evaluations": [{"epoch": 1, "samples": 10, "right": 8}]}, True),
        ({"epochs": 10, "target_accuracy": 0.8}, {"evaluations": [{"epoch": 1, "samples": 10, "right": 7}]}, False),
        ({"epochs": 10}, {"loop_ns": 10**12, "evaluations": [{"epoch": 1, "samples": 10, "right": 10}]}, False),
    ],
)
def test_a_run_may_end_early_for_a_reason(
    bundle: Path, limits: dict[str, Any], said: dict[str, Any], held: bool
) -> None:
    change(bundle, _say(said, said))
    wanted = dataclasses.replace(main(), **limits)
    assert failed_codes(bundle, wanted=wanted) == ([] if held else ["steps", "samples"])


def test_all_ranks_end_with_the_same_step(bundle: Path) -> None:
    change(bundle, _say({"loop_ns": 10**10}, {"steps": 29}))
    assert failed_codes(bundle, wanted=dataclasses.replace(main(), epochs=10, max_seconds=3)) == ["steps"]
    reached = {"evaluations": [{"epoch": 1, "samples": 10, "right": 9}], "steps": 60}
    change(bundle, _say(reached, reached))
    assert failed_codes(bundle, wanted=dataclasses.replace(main(), epochs=10, target_accuracy=0.9)) == ["steps"]
