"""A run that somebody else submitted: its window is the ResourceManager's, its layers come from what there is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Trace
from dlobd.errors import UsageError
from dlobd.evidence.evidence import Evidence
from dlobd.hadoop import aggregated_logs
from dlobd.run import manual_submission, orphans
from dlobd.run.collect import external
from dlobd.timeline.assemble import assemble
from tests.captured import note_sizes

QUICK_RUN = Path(__file__).parents[1] / "data" / "quick-run"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = Path(shutil.copytree(QUICK_RUN, tmp_path / "run"))
    window = json.loads((path / "evidence" / "window.json").read_text())
    record = json.loads((path / "evidence" / "rm-app.json").read_text())
    anchor = window["anchors"][0]
    offset_ns = anchor["wall_ns"] - anchor["monotonic_ns"]
    window |= {
        "exec_ns": record["startedTime"] * 1_000_000 - offset_ns,
        "started_ns": record["startedTime"] * 1_000_000 - offset_ns,
        "exit_ns": record["finishedTime"] * 1_000_000 - offset_ns,
        "by_hand": True,
        "pid": 0,
    }
    (path / "evidence" / "window.json").write_text(json.dumps(window))
    (path / "evidence" / "daemons.json").unlink()
    note_sizes(path)
    return path


def test_the_application_of_a_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = "20261122T071930Z-0578"
    assert manual_submission._run_id(run_id, tmp_path) == run_id
    with pytest.raises(UsageError, match=r"No run in .* is waiting to be collected"):
        manual_submission._run_id("latest", tmp_path)
    with pytest.raises(UsageError, match="neither a YARN application ID nor a run ID"):
        manual_submission._run_id("softmax", tmp_path)
    for ids, line in (
        ([], "has no application of run"),
        (["application_1_1", "application_1_2"], "submitted 2 times"),
    ):
        monkeypatch.setattr(orphans, "applications", lambda url, tag, ids=ids: [{"id": one} for one in ids])
        with pytest.raises(UsageError, match=line):
            manual_submission._submitted(run_id, "http://rm")
    monkeypatch.setattr(orphans, "applications", lambda url, tag: [{"id": f"of {tag}"}])
    assert manual_submission._submitted(run_id, "http://rm") == f"of dlobd-{run_id.lower()}"


def layers(trace: Trace) -> dict[str, int]:
    found = attribute(trace)
    assert sum(layer.ns for layer in found.layers) + found.unattributed_ns == trace.wall_ns
    return {layer.layer: layer.ns for layer in found.layers}


def test_all_of_the_window_is_explained(bundle: Path) -> None:
    trace = assemble(Evidence(bundle))
    assert {"yarn", "spark", "launcher", "feed", "hdfs", "tensorflow"} <= layers(trace).keys()
    found = attribute(trace)
    assert sum(layer.unexplained_ns for layer in found.layers) + found.unattributed_ns < 0.05 * found.wall_ns
    assert all(trace.start_ns <= span.start_ns <= span.end_ns <= trace.end_ns for span in trace.spans)
    assert [clip for clip in found.clips if clip.kind == "outside window"] == []
    assert "spark-submit script" not in {span.name for span in trace.spans}
    assert "application submitted" in [event.event for event in trace.startup]


@pytest.mark.parametrize(
    ("gone", "names"),
    [
        ("resourcemanager.log", {"allocate and launch AM container", "allocate and launch executor container"}),
        ("nodemanager-*.log", {"localise and start AM container", "localise and start executor container"}),
        ("*.log", {"allocate, localise and start AM container", "allocate, localise and start executor container"}),
    ],
)
def test_without_the_daemons_logs_yarn_is_coarser(bundle: Path, gone: str, names: set[str]) -> None:
    (bundle / "evidence" / "rm-attempts.json").write_text("[]")
    whole = assemble(Evidence(bundle))
    before = layers(whole)
    for path in (bundle / "logs" / "daemons").glob(gone):
        path.unlink()
    note_sizes(bundle)
    trace = assemble(Evidence(bundle))
    after = layers(trace)
    assert names <= {span.name for span in trace.spans if span.layer == "yarn"}
    assert after["yarn"] == pytest.approx(before["yarn"], abs=0.03 * whole.wall_ns)
    found = attribute(trace)
    assert sum(layer.unexplained_ns for layer in found.layers) + found.unattributed_ns < 0.06 * found.wall_ns


def test_lines_of_other_applications_stay_out() -> None:
    asked = external.LogQuery(("application_17_0001",), 1_000, 2_000, "ann", "/user/ann")
    stamp = "123456 1970-01-01T00:00:0{} INFO x: "
    managers = [stamp.format("9.000") + text for text in ("container_17_0001_01_000002", "application_17_00012")]
    assert lines(managers, asked, "nodemanager") == managers[:1]
    audits = [
        stamp.format(when) + text
        for when, text in (
            ("1.500", "ugi=ann (auth:SIMPLE) cmd=open src=/data"),
            ("1.500", "ugi=bob (auth:SIMPLE) cmd=open src=/data"),
            ("1.500", "BLOCK* /user/ann/x"),
            ("2.500", "ugi=ann (auth:SIMPLE) cmd=open src=/data"),
        )
    ]
    assert lines(audits, asked, "namenode") == [audits[0], audits[2]]
    assert lines([*audits, "no stamp"], asked, "datanode") == audits[:3]


def lines(given: list[str], asked: external.LogQuery, kind: str) -> list[str]:
    data = "".join(f"{line}\n" for line in given).encode()
    return [line.decode().rstrip("\n") for line in external._ours(data, asked, kind)]


def test_aggregated_logs_are_split_by_their_lengths() -> None:
    head = "Container: container_1_1_01_000001 on n_1\nLogAggregationType: AGGREGATED\n====\n"
    inside = "LogType:fake\nLogLength:1\nLogContents:\nx\n"
    text = "".join(
        f"{head if name == 'stderr' else ''}LogType:{name}\nLogLastModifiedTime:now\nLogLength:{len(data)}\n"
        f"LogContents:\n{data}\nEnd of LogType:{name}\n****\n\n"
        for name, data in (("stderr", inside), ("stdout", ""), ("jvm.log", "[1ns] a"))
    )
    assert dict(aggregated_logs.split(text.encode())) == {
        "stderr": inside.encode(),
        "stdout": b"",
        "jvm.log": b"[1ns] a",
    }
