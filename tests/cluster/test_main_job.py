"""The main job in its quick form, on real daemons: what its bundle holds, and what can be done with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dlobd as package
from dlobd.attribution.attribute import attribute
from dlobd.evidence.evidence import Evidence
from dlobd.fields import json_schema
from dlobd.record.run import Run
from dlobd.timeline.assemble import assemble
from tests.cluster.test_ways import same_training
from tests.scalar_attribution import arranged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

STARTUP = [
    "spark-submit exec",
    "spark-submit JVM up",
    "driver Python up",
    "SparkContext start",
    "submit RPC",
    "application accepted",
    "AM container allocated",
    "AM start requested",
    "AM localised",
    "AM process up",
    "AM registered",
    "executor container allocated",
    "executor start requested",
    "executor localised",
    "executor process up",
    "executor registered",
    "Python worker up",
    "launcher rendezvous done",
    "trainer forked",
    "TensorFlow imported",
    "TensorFlow rendezvous done",
    "first batch",
    "first step done",
]
TEARDOWN = [
    "last step done",
    "saved",
    "evaluated",
    "launcher shut down",
    "SparkContext stopped",
    "application finished",
    "driver JVM exit",
    "spark-submit exit",
]


@pytest.fixture(scope="module")
def record(quick_run: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((quick_run.bundle.path / "run.json").read_text())
    return found


def test_the_parts_sum_to_the_wall_and_are_explained(record: dict[str, Any]) -> None:
    """Exactly; what nothing explains is at most 5 % of the wall, and every layer of the stack has a part."""
    assert record["status"] == "ok", record["reason"]
    assert sum(layer["ns"] for layer in record["layers"]) + record["unattributed_ns"] == record["wall_ns"]
    unknown_ns = record["unattributed_ns"] + sum(layer["unexplained_ns"] for layer in record["layers"])
    assert unknown_ns <= 0.05 * record["wall_ns"]
    names = [layer["layer"] for layer in record["layers"]]
    assert names == ["client", "yarn", "spark", "launcher", "feed", "hdfs", "tensorflow"]
    assert all(layer["lo_ns"] <= layer["ns"] <= layer["hi_ns"] for layer in record["layers"])
    assert [item["layer"] for item in record["not_measured"]] == ["channel"]


def test_the_training_is_what_the_experiment_says(record: dict[str, Any]) -> None:
    metrics = record["metrics"]
    assert metrics["steps"] == 30
    assert metrics["train_samples"] == 6000
    assert metrics["test_samples"] == 2000
    assert metrics["test_accuracy"] >= 0.75
    assert metrics["last_loss"] < metrics["first_loss"]
    assert metrics["samples_per_second"] > 0
    assert all(check["verdict"] == "pass" for check in record["checks"])
    assert [(rank["role"], rank["index"], rank["steps"]) for rank in record["ranks"]] == [
        ("chief", 0, 30),
        ("worker", 0, 30),
    ]


def test_throughput_and_the_epoch_are_recorded(record: dict[str, Any]) -> None:
    """Of the steps after ten; the epoch has the stored model's accuracy, and the data was touched before its begin."""
    speed, (epoch,), metrics = record["throughput"], record["epochs"], record["metrics"]
    assert (speed["steps"], speed["samples_per_step"]) == (20, 200)
    assert 0 < speed["step"]["p50_ns"] < speed["step_with_input"]["p50_ns"]
    assert (epoch["epoch"], epoch["test_samples"]) == (1, metrics["test_samples"])
    assert epoch["test_accuracy"] == metrics["test_accuracy"]
    assert metrics["last_loss"] < epoch["loss"] < metrics["first_loss"]
    assert record["window"]["start_ns"] < record["first_touch"]["at_ns"] < epoch["end_ns"] - epoch["ns"]
    assert record["first_touch"]["source"] == "NN audit log"
    assert record["time_to_accuracy"] is None


def test_the_anatomy_is_complete_and_in_order(record: dict[str, Any]) -> None:
    for events, expected in ((record["startup"], STARTUP), (record["teardown"], TEARDOWN)):
        assert sorted(event["event"] for event in events) == sorted(expected)
        times = [event["at_ns"] for event in events]
        assert times == sorted(times)
        assert all(event["source"] and event["clock"] and event["resolution_ns"] >= 1 for event in events)
    assert [event["event"] for event in record["startup"]] == STARTUP


def test_hdfs_is_measured_by_purpose(record: dict[str, Any]) -> None:
    """Staging, reading, checkpoints, model, event log: each with bytes, and a source at both ends."""
    rows = {row["purpose"]: row for row in record["hdfs"]}
    wanted = {"staging", "localise", "read input", "write checkpoint", "write model", "read model", "read test set"}
    for row in (rows[purpose] for purpose in (*wanted, "event log")):
        assert row["operations"] > 0
        assert row["bytes"] > 0
        assert row["source_begin"]
        assert row["source_end"]
        assert row["lo_ns"] <= row["hi_ns"]
    assert rows["read input"]["bytes"] == 6000 * 838
    assert rows["read test set"]["bytes"] == 2000 * 838
    assert rows["all calls of the NameNode"]["operations"] > rows["of these, looks for done-markers"]["operations"]


def test_resources_are_sampled_and_plausible(record: dict[str, Any]) -> None:
    """The whole window; layers sum to the machine; no more CPU time than cores; the run's processes explain most of
    it, and each has its role."""
    found = record["resources"]
    machine = found["hosts"][0]
    assert machine["sampled_ns"] == record["wall_ns"]
    assert sum(row["ns"] for row in found["layers"]) == record["wall_ns"]
    for name in ("cpu_busy_ns", "loopback_bytes", "net_received_bytes", "net_sent_bytes"):
        assert sum(row[name] for row in found["layers"]) == machine[name], name
    tick_ns = 10_000_000  # of each counter, at both ends
    assert machine["cpu_busy_ns"] <= machine["cores"] * (record["wall_ns"] + 2 * tick_ns)
    slack_ns = 2 * tick_ns * (len(found["processes"]) + machine["cores"]) + 2 * found["longest_gap_ns"]
    seen_ns = machine["processes_cpu_ns"] + machine["unseen_cpu_ns"]
    assert machine["processes_cpu_ns"] == sum(process["cpu_ns"] for process in found["processes"])
    assert seen_ns <= machine["cpu_busy_ns"] + slack_ns
    roles = {(process["role"], process["index"]): process for process in found["processes"]}
    wanted = {("executor", 1), ("executor", 2), ("chief", 0), ("worker", 0), ("driver", 0), ("application-master", 0)}
    daemons = {
        ("namenode", 0),
        ("resourcemanager", 0),
        ("datanode", 0),
        ("nodemanager", 1),
        ("dlobd", 0),
        ("sampler", 0),
    }
    assert wanted | daemons <= roles.keys()
    for rank in record["ranks"]:
        assert roles[rank["role"], rank["index"]]["cpu_ns"] > 0
        assert roles[rank["role"], rank["index"]]["rss_peak_bytes"] > 100_000_000  # TensorFlow
    # its own CPU time: far below one core
    assert 0 < found["cost_ns"] < 0.05 * record["wall_ns"]


def test_sparks_metrics_are_those_of_the_job(record: dict[str, Any]) -> None:
    found = record["spark_metrics"]
    assert found["metrics"]["bytesRead"] == 6000 * 838
    assert found["metrics"]["numStages"] == 3
    assert [stage["call"] for stage in found["stages"]] == ["foreachPartition", "collect", "foreachPartition"]
    assert found["metrics"]["executorCpuTime"] <= found["metrics"]["executorRunTime"]
    assert found["failed_tasks"] == 0


def test_every_lane_sums_exactly(quick_run: Any, record: dict[str, Any]) -> None:
    """The run's lanes are there, and each is split without a remainder; another process than the run's own comes to
    the layers of its record, number for number."""
    trace = assemble(Evidence(quick_run.bundle.path))
    ranks = {"rank-0", "rank-1", "rank-0/reader", "rank-1/reader"}  # a rank's thread takes blocks ahead of its steps
    assert set(trace.lanes) == {"client", "driver", "application", "executor-1", "executor-2"} | ranks
    for lane in arranged(trace).values():
        assert sum(piece.end_ns - piece.start_ns for piece in lane.pieces) == trace.wall_ns
    found = attribute(trace)
    assert {layer.layer: layer.ns for layer in found.layers} == {row["layer"]: row["ns"] for row in record["layers"]}
    assert found.unattributed_ns == record["unattributed_ns"]


def test_show_json_follows_the_schema(dlobd: Any, quick_run: Any, record: dict[str, Any]) -> None:
    ended = dlobd("show", str(quick_run.bundle.path), "--json")
    assert ended.code == 0
    shown = json.loads(ended.out)
    jsonschema.validate(shown, json_schema(Run))
    assert shown == record


def test_the_trace_has_a_track_for_each_lane(dlobd: Any, quick_run: Any, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    assert dlobd("trace", str(quick_run.bundle.path), "-o", str(target)).code == 0
    events = json.loads(target.read_text())["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) >= 8  # seven lanes and the critical path
    for slices in tracks.values():
        open_: list[float] = []
        for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1] <= start + 1e-4:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-4
            open_.append(end)


def test_secrets_are_not_stored(quick_run: Any) -> None:
    texts = [path.read_text(errors="replace") for path in quick_run.bundle.logs.rglob("*") if path.is_file()]
    keyed = [line for text in texts for line in text.splitlines() if "'authkey'" in line]
    assert keyed
    assert all("[redacted]" in line for line in keyed)


def test_the_bundle_is_enough(quick_run: Any, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / quick_run.bundle.run_id
    shutil.copytree(quick_run.bundle.path, copy)
    ended = subprocess.run(
        [sys.executable, "-m", "dlobd", "show", str(copy), "--full"],
        env={"DLOBD_CACHE": str(tmp_path / "cache"), "PATH": "/nowhere", "HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "== wall" in ended.stdout
    assert ended.stderr == ""
    assert not (tmp_path / "cache").exists()


def test_the_bundle_as_data_frames(quick_run: Any, record: dict[str, Any]) -> None:
    bundle = package.load(quick_run.bundle.path)
    assert bundle.attribution()["ns"].sum() == record["wall_ns"]
    assert len(bundle.steps()) == 60
    assert set(bundle.spans()["layer"]) >= {"yarn", "spark", "hdfs", "tensorflow"}


def test_a_seeded_run_repeats_reuses_the_data_and_excludes_other_runs(dlobd: Any, quick_run: Any) -> None:
    """A second run finds the data set in HDFS, and each step has the same loss. A command that starts meanwhile ends
    with the process ID of the run, which continues."""
    started = dlobd.start_run()
    started.trains()
    other = replace(dlobd, out=dlobd.out.with_name("other")).run()
    assert other.code == 8
    assert re.fullmatch(
        rf"dlobd: Another dlobd command \(pid {started.process.pid}\) is using the cluster in {dlobd.work_dir}\. "
        r"Next: wait for it to finish, or stop it",
        other.line,
    )
    assert not dlobd.out.with_name("other").exists()
    ended = started.ended(300)
    assert ended.code == 0, ended.err
    assert ended.bundle.read_json()["metrics"]["staged_bytes"] == 0
    same_training(ended.bundle, quick_run.bundle)
