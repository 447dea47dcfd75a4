"""run.json from a bundle's evidence: status and cause in one line, figures that follow from the evidence alone."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import store
from dlobd.bundle.store import Bundle
from dlobd.evidence.recorder import read
from dlobd.experiment import files
from dlobd.recompute import computed as record
from dlobd.run import run_record as run_records
from dlobd.schema import Experiment
from tests.captured import Captured, note_sizes
from tests.records import layer_row, run

DATA = Path(__file__).parents[1] / "data"


def main() -> Experiment:
    return files.load("softmax-mnist-quick")


def bundle_of(run: str, directory: Path) -> Bundle:
    return Bundle(Path(shutil.copytree(DATA / run, directory / "20260102T030405Z-0a1b")))


def filled(bundle: Bundle, wanted: Experiment | None = None, **window: Any) -> dict[str, Any]:
    path = bundle.evidence / "window.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | window))
    found = run_records.begin(bundle, wanted or main()).to_json()
    note_sizes(bundle.path)
    collected = bundle.evidence / "collected.json"
    noted = {"missing": ["something was missing"], "metrics": {"staged_bytes": 7}}
    collected.write_text(json.dumps(json.loads(collected.read_text()) | noted))
    found |= record.computed(bundle, wanted or main()).to_json()
    store.validate(json.loads(json.dumps(found)), "test")
    return found


def test_a_record_before_submission_is_valid(tmp_path: Path) -> None:
    bundle = store.create(tmp_path, "softmax-mnist-quick")
    begun = run_records.begin(bundle, main()).to_json()
    bundle.write(begun)
    found = bundle.read_json()
    assert (found["status"], found["reason"], found["wall_ns"], found["layers"]) == ("running", None, None, [])
    assert found["process"]["pid"] == os.getpid()
    assert found["configuration"] == dataclasses.asdict(main())
    assert found["experiment_key"] == files.key(main())
    assert found["seeds"] == {"data_order": main().seed, "weights": main().seed}


def test_a_good_run(tmp_path: Path) -> None:
    found = filled(bundle_of("quick-run", tmp_path))
    assert (found["status"], found["reason"]) == ("ok", None)
    assert {check["verdict"] for check in found["checks"]} == {"pass"}
    assert sum(layer["ns"] for layer in found["layers"]) + found["unattributed_ns"] == found["wall_ns"]
    assert found["window"]["end_ns"] - found["window"]["start_ns"] == found["wall_ns"]
    metrics = found["metrics"]
    assert (metrics["steps"], metrics["train_samples"], metrics["test_samples"]) == (30, 6_000, 2_000)
    assert metrics["test_accuracy"] >= main().min_accuracy
    assert metrics["last_loss"] < metrics["first_loss"]
    assert metrics["samples_per_second"] == pytest.approx(6_000 / metrics["training_ns"] * 1e9)
    assert [(rank["role"], rank["steps"]) for rank in found["ranks"]] == [("chief", 30), ("worker", 30)]
    for rank in found["ranks"]:
        assert 0 < rank["step_p50_ns"] <= rank["step_max_ns"]
        assert rank["step_p99_ns"] is None
    assert found["warnings"] == ["something was missing", *Captured.stored("quick-run")["warnings"]]


@pytest.mark.parametrize("run", ["quick-run", "killed-trainer"])
def test_the_same_evidence_gives_the_same_record(captured: Captured, run: str) -> None:
    stored = json.loads(json.dumps(captured.bundle(run).read().to_json()))  # with the defaults of later members
    found = json.loads(json.dumps(captured.computed(run)))
    assert found == {key: stored[key] for key in found}


def test_a_killed_trainer_is_a_failed_run_with_its_spans(tmp_path: Path) -> None:
    found = filled(bundle_of("killed-trainer", tmp_path))
    assert found["status"] == "failed"
    assert found["reason"]
    assert "\n" not in found["reason"]
    assert "steps" not in {check["code"] for check in found["checks"]}
    assert found["metrics"]["test_accuracy"] is None
    assert sum(rank["steps"] for rank in found["ranks"]) > 20
    assert any("spans have no recorded end" in line for line in found["warnings"])


@pytest.mark.parametrize(
    ("window", "status", "said"),
    [
        ({"ended_by": "timeout", "exit_code": -15}, "failed", "timeout_s = 600 s"),
        ({"ended_by": "interrupt", "exit_code": -15}, "interrupted", "interrupted by the user"),
        ({"exit_code": -9}, "failed", "spark-submit was killed by signal 9"),
        ({"exit_code": 137}, "failed", "the driver's Python was killed by signal 9"),
        ({"exit_code": 1}, "failed", "spark-submit exited with code 1"),
    ],
)
def test_how_a_job_ended_is_its_cause(tmp_path: Path, window: dict[str, Any], status: str, said: str) -> None:
    found = filled(bundle_of("quick-run", tmp_path), dataclasses.replace(main(), timeout_s=600), **window)
    assert found["status"] == status
    assert said in found["reason"]
    assert "steps" not in {check["code"] for check in found["checks"]}


def test_the_first_cause_that_was_reported_is_the_reason(tmp_path: Path) -> None:
    bundle = bundle_of("quick-run", tmp_path)
    (bundle.logs / "driver.stdout").write_text("dlobd: job failed: first\nx\ndlobd: job failed: rank 1: boom \n")
    assert filled(bundle, exit_code=1)["reason"] == "rank 1: boom"
    bundle = bundle_of("quick-run", tmp_path / "b")
    (bundle.evidence / "rm-app.json").write_text(json.dumps({"diagnostics": "\n AM container  is launched\nmore" * 99}))
    assert filled(bundle, exit_code=1)["reason"] == "AM container is launched"


def test_a_run_with_a_wrong_result_is_invalid(tmp_path: Path) -> None:
    found = filled(bundle_of("quick-run", tmp_path), dataclasses.replace(main(), min_accuracy=0.999))
    assert found["status"] == "invalid"
    assert found["reason"] == "the test accuracy is 0.8300; the experiment asks for at least 0.9990"


def test_a_cut_span_file_is_a_warning(tmp_path: Path) -> None:
    bundle = bundle_of("quick-run", tmp_path)
    path = max(bundle.spans.rglob("*.jsonl"), key=lambda path: path.stat().st_size)
    path.write_text(path.read_text()[:-10])
    warnings = filled(bundle)["warnings"]
    assert "1 lines of span files are truncated: their process was killed while writing" in warnings


def test_the_summary_names_the_largest_layers() -> None:
    layers = [
        layer_row(name, "group", ns) for name, ns in (("hdfs", 1), ("spark", 3 * 10**9), ("yarn", 2), ("feed", 3))
    ]
    assert record.summary_line(run(layers=layers)) == "ok: spark 3.0 s, feed 0.0 s, yarn 0.0 s"
    assert record.summary_line(run(status="failed", layers=[])) == "failed"


def test_a_wall_clock_that_was_stepped_moves_no_figure(tmp_path: Path) -> None:
    before = filled(bundle_of("quick-run", tmp_path / "a"))
    bundle = bundle_of("quick-run", tmp_path / "b")
    window = json.loads((bundle.evidence / "window.json").read_text())
    middle_ns = (window["exec_ns"] + window["exit_ns"]) // 2

    def stepped(item: dict[str, Any]) -> dict[str, Any]:
        back_ns = 3 * 10**9 if item.get("monotonic_ns", 0) > middle_ns else 0
        return item | {"wall_ns": item["wall_ns"] - back_ns} if back_ns else item

    for path in bundle.spans.rglob("spans-*.jsonl"):
        path.write_text("".join(json.dumps(stepped(json.loads(line))) + "\n" for line in path.read_text().splitlines()))
    after = filled(bundle, anchors=[stepped(item) for item in window["anchors"]])
    (warning,) = set(after["warnings"]) - set(before["warnings"])
    assert warning.startswith("the wall clock was stepped by -3.000 s during the job")
    for name in (
        "wall_ns",
        "layers",
        "unattributed_ns",
        "intervals",
        "clips",
        "startup",
        "teardown",
        "ranks",
        "metrics",
    ):
        assert after[name] == before[name]


def daemon(name: str, alive: bool) -> dict[str, Any]:
    return {"name": name, "kind": name[:8], "host": "127.0.0.1", "ports": {"http": 5}, "alive": alive}


def test_hdfs_outages_that_were_survived_are_warnings(tmp_path: Path) -> None:
    bundle = bundle_of("quick-run", tmp_path)
    daemons = [daemon("datanode-0", alive=False), daemon("datanode-1", alive=True)]
    (bundle.evidence / "daemons.json").write_text(json.dumps(daemons))
    attrs = {"address": "127.0.0.1:5", "how": "refused the connection", "path": "/x", "purpose": "model"}
    path = next(bundle.spans.rglob("spans-*.jsonl"))
    process = read(path)
    assert process
    given_up = json.dumps({"k": "i", "n": "DataNode given up", "t": process.last_ns, "a": attrs})
    path.write_text(path.read_text() + f"{given_up}\n{given_up}\n")
    found = filled(bundle)
    assert found["status"] == "ok", found["reason"]
    assert "datanode-0 died during the run" in found["warnings"]
    assert (
        "the DataNode at 127.0.0.1:5 refused the connection: 2 reads and writes used another DataNode"
        in found["warnings"]
    )


@pytest.mark.parametrize(
    ("dead", "said", "cause"),
    [
        ("namenode", "Connection refused", "namenode (127.0.0.1:5) died during the job: rank 0 (chief): gone"),
        (
            "namenode",
            'rank 0 (chief): HdfsError: End of File Exception between local host is: "a"; destination host is: "b":1',
            "namenode (127.0.0.1:5) died during the job: rank 0 (chief): HdfsError: End of File",
        ),
        ("datanode-1", "anything", "rank 0 (chief): gone"),
        ("", "anything", "rank 0 (chief): gone"),
        ("datanode-1", "rank 1 (worker): the DataNode", "datanode-1 (127.0.0.1:5) died during the job: rank 1"),
    ],
)
def test_the_recorded_cause_of_a_rank_counts_without_hdfs(tmp_path: Path, dead: str, said: str, cause: str) -> None:
    bundle = bundle_of("quick-run", tmp_path)
    (bundle.evidence / "daemons.json").write_text(json.dumps([daemon(dead, alive=False)] if dead else []))
    words = "rank 0 (chief): gone" + (": NameNode" if dead == "namenode" else "")
    failed = json.dumps({"k": "i", "n": "rank failed", "t": 1, "a": {"cause": words}})
    path = next(bundle.spans.rglob("spans-*.jsonl"))
    path.write_text(f"{path.read_text()}{failed}\n")
    (bundle.logs / "driver.stderr").write_text(f"dlobd: job failed: {said}\n")
    if said.startswith("rank"):
        (driver,) = (bundle.spans / "driver").iterdir()
        chosen = json.dumps({"k": "i", "n": "training failed", "t": 1, "a": {"cause": said}})
        driver.write_text(f"{driver.read_text()}{chosen}\n")
    assert filled(bundle, exit_code=1)["reason"].startswith(cause)
