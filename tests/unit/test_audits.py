"""Sources that contradict each other are found, each pair by its own audit; what a run may do raises no alarm."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dlobd.attribution import record
from dlobd.attribution.audits import audit
from dlobd.attribution.importers.evidence import Evidence
from dlobd.bundle.store import Bundle
from dlobd.experiment import own_job
from dlobd.experiment.files import key

DATA = Path(__file__).parents[1] / "data"
OF_LATER_VERSIONS = {
    "bytes in the page cache", "calls of the NameNode", "closes of files", "counters of interfaces",
    "evaluations", "files in the page cache", "loop time",
    "losses of epochs", "memory of executors", "memory that executors kept", "order of quantiles", "reads from disk",
    "right predictions", "starts of processes", "sums of stages", "times on a core", "window and samples",
}  # fmt: skip
"""Audits of what was not recorded yet when the captures were made."""

CAPTURES = ("killed-trainer", "native-run", "own-run", "quick-run", "sampled-run", "seen-run")

Change = Callable[[Path], None]


def text(name: str, pattern: str, instead: str) -> Change:
    """Replaces the first place that `pattern` finds; `name` may be a glob, of which the first file that has it."""

    def change(path: Path) -> None:
        for file in sorted(path.glob(name)):
            old = file.read_text()
            new = re.sub(pattern, instead, old, count=1, flags=re.MULTILINE)
            if new != old:
                file.write_text(new)
                return
        raise AssertionError(f"{pattern} is not in {name}")

    return change


def without_container(path: Path) -> None:
    """One container's logs are gone."""
    shutil.rmtree(max((path / "logs" / "containers").iterdir()))


RM = "logs/daemons/resourcemanager.log"
NN = "logs/daemons/namenode-audit.log"
EVENTS = "evidence/event-log.jsonl"
MARKERS = "evidence/markers.json"
SPANS = "spans/container_*/*.jsonl"

PLANTED: dict[str, tuple[Change, set[str]]] = {
    "Spark read a byte more": (
        text(EVENTS, '"Bytes Read":2514000', '"Bytes Read":2514001'),
        {"input bytes, Spark"},
    ),
    "a DataNode sent a byte more": (
        text("logs/daemons/datanode-*-clienttrace.log", "bytes: 2533644", "bytes: 2533645"),
        {"input bytes, DataNodes"},
    ),
    "an input file was never opened": (
        text(NN, r"^.*cmd=open\t\S*part-00000.*\n", ""),
        {"input opens"},
    ),
    "an input file is longer": (
        text("evidence/blocks.json", '"fileLength": 2514000', '"fileLength": 2514838'),
        {"input splits", "input file lengths", "input bytes, Spark", "input bytes, DataNodes", "bytes into the feed"},
    ),
    "HDFS holds other bytes than were staged": (
        text("evidence/checksums.json", r'("hdfs": \{"[^"]*": "\w{40})\w', r"\1x"),
        {"input checksums"},
    ),
    "a file was never created": (
        text(NN, r"^.*cmd=create\t\S*done/rank-1\.json.*\n", ""),
        {"files written"},
    ),
    "a file was created later than it was written": (
        text(NN, r"^1005(\d+ .*cmd=create\t\S*fingerprint)", r"1006\1"),
        {"own marks and the NameNode's log", "order of lines", "two stamps of a line"},
    ),
    "less was put into the feed": (
        text(SPANS, r'("n":"put".*"bytes":8380)0', r"\g<1>1"),
        {"bytes into the feed", "bytes through the feed"},
    ),
    "less was taken out of the feed": (
        text(SPANS, r'(\{"k":"b","l":"feed","n":"get".*\n\{"k":"e",.*"bytes":83)800', r"\g<1>000"),
        {"bytes through the feed", "samples trained"},
    ),
    "a rank reports more samples": (
        text(MARKERS, r'\\"samples\\": 3000', r'\\"samples\\": 3100'),
        {"samples trained", "steps x batch"},
    ),
    "a rank reports fewer steps": (
        text(MARKERS, r'\\"steps\\": 30', r'\\"steps\\": 29'),
        {"steps", "steps x batch", "checkpoints"},
    ),
    "a step was not recorded as one": (
        text(SPANS, '"rendezvous":"step","call":7', '"rendezvous":"stop","call":7'),
        {"steps", "names and waits", "members of collectives"},
    ),
    "the job had another batch size": (
        text("evidence/job.json", '"batch_size": 100', '"batch_size": 50'),
        {"steps x batch", "input file lengths"},
    ),
    "YARN charges more memory": (
        text("evidence/rm-app.json", r'"memorySeconds": 91', '"memorySeconds": 92'),
        {"container memory", "record and summary"},
    ),
    "a container was larger": (
        text(RM, r"(Assigned container \S+ of capacity <memory:)1792", r"\g<1>1920"),
        {"container memory"},
    ),
    "YARN gave more containers": (
        text(RM, "totalAllocatedContainers=3", "totalAllocatedContainers=4"),
        {"containers"},
    ),
    "a container left no log": (without_container, {"containers", "tasks at executors", "input splits"}),
    "the application began before spark-submit": (
        text(RM, r"startTime=1795263991", "startTime=1795263981"),
        {"application inside the window", "application's length", "application's record", "record and summary"},
    ),
    "the application ended much later": (
        text(RM, r"finishTime=1795264015", "finishTime=1795264055"),
        {"application inside the window", "application's length", "application's record", "record and summary"},
    ),
    "YARN logged the application's end earlier": (
        text(RM, r"^1005(\d+ .*RMAppImpl.* to FINAL_SAVING on event)", r"1004\1"),
        {"application's length", "order of lines", "two stamps of a line"},
    ),
    "REST has another length": (
        text("evidence/rm-app.json", '"elapsedTime": 24063', '"elapsedTime": 24064'),
        {"application's record"},
    ),
    "an executor worked longer than its task": (
        text(EVENTS, '"Executor Run Time":6266', '"Executor Run Time":6666'),
        {"run time inside the task", "metrics of tasks"},
    ),
    "a task never ended": (
        text(EVENTS, r"^.*SparkListenerTaskEnd.*\n", ""),
        {"tasks"},
    ),
    "a span was lost": (
        text(SPANS, r'^\{"k":"b","l":"tensorflow","n":"decode".*\n', ""),
        {"spans", "lines of the recorder"},
    ),
    "Spark stopped after its call": (
        text("logs/driver.stderr", r"^1005(\d+ .*Successfully stopped SparkContext)", r"1006\1"),
        {"own marks and Spark's log", "lengths that Spark tells", "two stamps of a line"},
    ),
    "a process recorded before spark-submit": (
        text("spans/driver/*.jsonl", r'"opened_ns":10(\d+)', r'"opened_ns":9\1'),
        {"records inside the window", "start and first record", "names of span files"},
    ),
}


def failed(path: Path) -> set[str]:
    """The audits that fail."""
    return {one.audit for one in audit(Evidence(path)) if one.verdict == "fail"}


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    """A copy of a captured run of the embedded cluster, on YARN."""
    return Path(shutil.copytree(DATA / "quick-run", tmp_path / "20260102T030405Z-0a1b"))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_inconsistency_is_found_by_its_audit(quick: Path, name: str) -> None:
    """One source was changed: the audits that compare it fail, all of them, and no other."""
    change, meant = PLANTED[name]
    change(quick)
    found = failed(quick)
    assert found == meant
    for one in audit(Evidence(quick)):
        if one.verdict == "fail":
            assert (one.left, one.right) != (None, None)


def test_another_script_is_found(tmp_path: Path) -> None:
    """Of a script of one's own: what lies in the bundle is not what was run."""
    own = Path(shutil.copytree(DATA / "own-run", tmp_path / "own"))
    assert failed(own) == set()
    with (own / "evidence" / "script.py").open("a") as script:
        script.write("# changed\n")
    assert failed(own) == {"script"}


@pytest.mark.parametrize("run", CAPTURES)
def test_a_clean_bundle_raises_no_alarm(run: str) -> None:
    """What is there agrees; what is unknown says why."""
    found = audit(Evidence(DATA / run))
    assert [one for one in found if one.verdict == "fail"] == []
    assert any(one.verdict == "pass" for one in found)
    assert all(one.detail for one in found)


def test_nothing_is_unknown_of_a_run_on_yarn() -> None:
    """But what only a script of one's own, a parent process or a later version has."""
    unknown = {one.audit for one in audit(Evidence(DATA / "quick-run")) if one.verdict != "pass"}
    assert unknown == {"script", "jobs of a script", "exits of ranks", *OF_LATER_VERSIONS}


# ---- no false alarm: a difference that has an innocent explanation is unknown


def verdicts(path: Path) -> dict[str, tuple[str, str]]:
    """Audit to verdict and detail."""
    return {one.audit: (one.verdict, one.detail) for one in audit(Evidence(path))}


def test_logs_of_a_foreign_cluster_may_be_incomplete(quick: Path) -> None:
    """A DataNode's line that is missing there is no contradiction."""
    (quick / "evidence" / "rm-attempts.json").write_text("[]")
    PLANTED["a DataNode sent a byte more"][0](quick)
    assert failed(quick) == set()
    verdict, why = verdicts(quick)["input bytes, DataNodes"]
    assert verdict == "unknown"
    assert "external" in why


def test_a_datanode_that_died_explains_other_bytes(quick: Path) -> None:
    """What it sent is not known; what did not go through it still must agree."""
    daemons = [{"name": "datanode-1", "alive": False}, {"name": "namenode", "alive": True}]
    (quick / "evidence" / "daemons.json").write_text(json.dumps(daemons))
    PLANTED["a DataNode sent a byte more"][0](quick)
    PLANTED["a rank reports fewer steps"][0](quick)
    assert verdicts(quick)["input bytes, DataNodes"][1].endswith("datanode-1 died during the run")
    assert failed(quick) == {"steps", "steps x batch", "checkpoints"}


def test_a_reader_that_warned_may_have_read_twice(quick: Path) -> None:
    """HDFS's Java client went on with another replica."""
    log = next(quick.glob("logs/containers/*_000002/stderr"))
    with log.open("a") as file:
        file.write("10046757097437 2026-11-21T12:26:48.414 WARN hdfs.DFSClient: Connection failure\n")
    PLANTED["a DataNode sent a byte more"][0](quick)
    assert verdicts(quick)["input bytes, DataNodes"][0] == "unknown"


def test_a_long_file_may_be_opened_more_than_once(quick: Path) -> None:
    """A client asks again where its blocks are, once it has read so many of them, and the NameNode logs an open."""
    PLANTED["an input file was never opened"][0](quick)
    assert "input opens" in failed(quick)
    text("evidence/blocks.json", '"fileLength": 2514000', '"fileLength": 2514000000')(quick)
    verdict, why = verdicts(quick)["input opens"]
    assert verdict == "unknown"
    assert why.endswith("a client asks more than once where the blocks of a file this long are")


def test_a_run_by_hand_has_the_window_of_yarn(quick: Path) -> None:
    """Its driver began before the window."""
    text("evidence/window.json", r'"exec_ns": 1002(\d+)', r'"exec_ns": 1003\1')(quick)
    assert failed(quick) >= {"records inside the window"}
    text("evidence/window.json", r"\{", '{"by_hand": true,')(quick)
    found = verdicts(quick)
    assert found["records inside the window"][0] == found["application inside the window"][0] == "unknown"


def test_a_job_that_did_not_end_well_owes_no_sums(quick: Path) -> None:
    """Also where spark-submit says 0 and a rank left nothing."""
    text(MARKERS, r'"rank-1\.json"', '"other.json"')(quick)
    assert failed(quick) == set()
    assert verdicts(quick)["steps"] == ("unknown", "1 of 2 ranks left no result")


def test_the_barrier_launcher_reads_its_input_once(quick: Path) -> None:
    """Later epochs come from its tasks' memory, and are put into the feed again."""
    text("evidence/job.json", '"epochs": 1', '"epochs": 2')(quick)
    text("evidence/job.json", '"launcher": "tfos"', '"launcher": "barrier"')(quick)
    assert not failed(quick) & {"input bytes, Spark", "input bytes, DataNodes", "input opens"}
    assert "bytes into the feed" in failed(quick)


def test_an_application_master_may_leave_after_its_driver(quick: Path) -> None:
    """In client mode spark-submit does not wait for it; in cluster mode it does."""
    text(RM, r"finishTime=1795264015", "finishTime=1795264018")(quick)
    assert "application inside the window" not in failed(quick)
    text("evidence/job.json", '"deploy_mode": "client"', '"deploy_mode": "cluster"')(quick)
    assert verdicts(quick)["application inside the window"][0] == "fail"


def test_a_container_that_the_end_of_its_application_overtook_is_charged_until_then(quick: Path) -> None:
    """The ResourceManager calls it KILLED where it had not heard of its end yet."""
    text(RM, r"(_000002 Container Transitioned from RUNNING to )COMPLETED", r"\1KILLED")(quick)
    assert verdicts(quick)["container memory"][0] == "pass"


def test_a_stepped_wall_clock_moves_no_task(quick: Path) -> None:
    """Launch and finish are wall-clock stamps."""
    text(EVENTS, '"Finish Time":1795264012631', '"Finish Time":1795264011631')(quick)
    assert "run time inside the task" in failed(quick)
    window = json.loads((quick / "evidence" / "window.json").read_text())
    window["anchors"][-1]["wall_ns"] -= 10**9
    (quick / "evidence" / "window.json").write_text(json.dumps(window))
    assert "run time inside the task" not in failed(quick)


def test_run_time_counts_each_cpu_of_a_task(quick: Path) -> None:
    """Tasks of two CPUs report almost twice the time that the driver saw, and nothing is wrong."""
    path = quick / EVENTS
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd":
            metrics, info = event["Task Metrics"], event["Task Info"]
            inside_ms = info["Finish Time"] - info["Launch Time"] - metrics["Executor Deserialize Time"]
            metrics["Executor Run Time"] = 2 * inside_ms
    path.write_text("\n".join(map(json.dumps, events)))
    assert "run time inside the task" in failed(quick)
    requests = {"cpus": {"Resource Name": "cpus", "Amount": 2.0}}
    profile = {
        "Event": "SparkListenerResourceProfileAdded",
        "Resource Profile Id": 0,
        "Task Resource Requests": requests,
    }
    path.write_text("\n".join(map(json.dumps, [profile, *events])))
    assert "run time inside the task" not in failed(quick)


def test_evidence_that_cannot_be_read_is_unknown(quick: Path) -> None:
    """Others say that it is damaged; here there is no verdict, and no traceback."""
    text(EVENTS, '"Task Info"', '"Task Onfo"')(quick)
    assert verdicts(quick)["tasks"] == ("unknown", "its evidence cannot be read: KeyError: 'Task Info'")


# ---- in the record


def test_a_contradiction_makes_the_run_invalid(quick: Path) -> None:
    """As a check that does not hold: the cause names the audit, both figures and their sources."""
    bundle = Bundle(quick)
    run = bundle.read_json()
    experiment = own_job.from_dict(run["configuration"])
    run["experiment_key"] = key(experiment)
    run |= record.computed(bundle, experiment).to_json()
    assert (run["status"], run["reason"]) == ("ok", None)
    PLANTED["a DataNode sent a byte more"][0](quick)
    run |= record.computed(bundle, experiment).to_json()
    bundle.write(run)
    assert run["status"] == "invalid"
    assert run["reason"] == (
        "sources contradict each other: input bytes, DataNodes: 5067289 (DataNode client trace), 5067288 (file lengths "
        "in HDFS x passes over them, with checksums)"
    )
    assert [one["audit"] for one in run["audits"] if one["verdict"] == "fail"] == ["input bytes, DataNodes"]


def test_a_failed_run_stays_failed() -> None:
    """What a job that died left may not add up; why it died is what counts."""
    bundle = Bundle(DATA / "killed-trainer")
    run = bundle.read_json()
    run |= record.computed(bundle, own_job.from_dict(run["configuration"])).to_json()
    assert run["status"] == "failed"
