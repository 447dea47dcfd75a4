import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

import dlobd
from dlobd import spans as kinds
from dlobd.bundle import files, store
from dlobd.errors import BundleError
from dlobd.measures import frames
from dlobd.schema import Process, Span, Trace
from tests.records import run_record
from tests.samples import host, process, sample


def _trace() -> Trace:
    chief, worker = Process("h", "chief", 0, 10), Process("h", "worker", 0, 11)
    client = Process("h", "client", 0, 1)
    spans = [Span("c", None, kinds.SpanKind("run", "client"), client, "client", 1_000, 9_000, source="own clock")]
    for who, late in ((worker, 50), (chief, 0)):
        lane = who.role
        spans.append(Span(lane, None, kinds.TRAINER, who, lane, 2_000, 8_000, attrs={"pid": who.pid}))
        for step in (1, 0):  # out of order: a trace promises none
            start = 3_000 + 1_000 * step + late
            kind, meeting = kinds.STEP if step else kinds.FIRST_STEP, f"step {step}"
            step_span = Span(f"{lane}{step}", lane, kind, who, lane, start, start + 400)
            spans.append(dataclasses.replace(step_span, rendezvous=meeting, call=step))
    spans.append(Span("j", "worker", kinds.JOIN_RANKS, worker, "worker", 2_100, 2_200, rendezvous="join ranks"))
    spans.append(Span("a", "chief", kinds.AGREE, chief, "chief", 5_000, 5_100, rendezvous="agree 1", call=1))
    return Trace(1_000, 9_000, tuple(spans))


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> store.Bundle:
    stand_in = ModuleType("dlobd.timeline.assemble")
    stand_in.assemble = lambda evidence: _trace()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dlobd.timeline.assemble", stand_in)
    bundle = store.create(tmp_path, "softmax-mnist")
    bundle.write(run_record(bundle.run_id))
    return bundle


def test_attribution_has_a_row_a_layer_and_sums_to_the_wall(bundle: store.Bundle) -> None:
    table = dlobd.load(bundle.path).attribution()
    assert list(table.columns) == list(frames.ATTRIBUTION)
    assert table["layer"].tolist() == ["spark", "tensorflow", "unattributed"]
    assert table["ns"].sum() == 1_000_000_000
    assert table["percent"].tolist() == [60.0, 39.0, 1.0]
    assert table["ns"].dtype == "int64"


def test_runs_without_window_or_samples_have_empty_frames(bundle: store.Bundle) -> None:
    record = run_record(bundle.run_id, window=None, wall_ns=None, layers=[], unattributed_ns=None)
    bundle.write(record)
    table = dlobd.load(bundle.path).attribution()
    assert table.empty
    assert list(table.columns) == list(frames.ATTRIBUTION)
    table = dlobd.load(bundle.path).resources()
    assert table.empty
    assert list(table.columns) == list(frames.RESOURCES)


def test_spans_count_from_the_start_of_the_window(bundle: store.Bundle) -> None:
    table = dlobd.load(bundle.path).spans()
    assert {name: str(kind) for name, kind in table.dtypes.items()} == frames.SPANS
    assert len(table) == 9
    assert table["start_ns"].is_monotonic_increasing
    assert table.iloc[0][["layer", "start_ns", "end_ns", "duration_ns", "parent"]].tolist() == [
        "client",
        0,
        8_000,
        8_000,
        "",
    ]
    assert table[table["id"] == "chief"].iloc[0]["attrs"] == {"pid": 10}


def test_steps_have_a_row_a_rank_and_step(bundle: store.Bundle) -> None:
    """Steps are found by their rendezvous: the first is among them, and a join of ranks or an agreement is not."""
    table = dlobd.load(bundle.path).steps()
    assert {name: str(kind) for name, kind in table.dtypes.items()} == frames.STEPS
    expected = pd.DataFrame(
        [
            ("chief", 0, 0, 2_000, 2_400, 400),
            ("chief", 0, 1, 3_000, 3_400, 400),
            ("worker", 0, 0, 2_050, 2_450, 400),
            ("worker", 0, 1, 3_050, 3_450, 400),
        ],
        columns=list(frames.STEPS),
    ).astype(frames.STEPS)
    pd.testing.assert_frame_equal(table, expected)


def test_a_frame_has_the_status_of_its_run(bundle: store.Bundle) -> None:
    bundle.write(
        run_record(bundle.run_id, status="invalid", reason="the ranks recorded 1 step spans; they report 2 steps")
    )
    run = dlobd.load(bundle.path)
    for frame in (run.attribution(), run.spans(), run.steps()):
        assert (frame.attrs["run_id"], frame.attrs["status"]) == (bundle.run_id, "invalid")
        assert frame.attrs["reason"].startswith("the ranks recorded")


def test_load_refuses_a_directory_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no run"):
        dlobd.load(tmp_path)


def test_resources_has_a_row_a_sample_and_process(bundle: store.Bundle) -> None:
    samples = [
        sample(0, 0, t=at_ns, cpu=[at_ns * 2, 0, 0], memory=5, net={"lo": [3, 3]}, p={"7": [at_ns, 1, 0, 4, None, 2]})
        for at_ns in (1_000, 3_000)
    ]
    lines = [host(roots={"dlobd": 7}, sampler=8), process(7, 1, start_s=5e-9), *samples]
    (bundle.path / files.RESOURCES).write_text("\n".join(lines))
    window = {"exec_ns": 0, "started_ns": 0, "exit_ns": 9, "exit_code": 0, "pid": 99}
    window |= {"application_id": None, "ended_by": "", "anchors": []}
    (bundle.path / files.WINDOW).write_text(json.dumps(window))
    (bundle.path / files.JOB).write_text(json.dumps({"script": "job.py"}))
    table = dlobd.load(bundle.path).resources()
    assert list(table.columns) == list(frames.RESOURCES)
    start_ns = bundle.read().window.start_ns  # type: ignore[union-attr]
    rows = table[["at_ns", "role", "pid", "cpu_ns", "memory_bytes", "disk_written_bytes", "loopback_bytes"]]
    assert rows.astype(object).where(rows.notna(), None).to_numpy().tolist() == [
        [1_000 - start_ns, "dlobd", 7, 1_001, 4, 2, None],
        [1_000 - start_ns, "host", None, 2_000, 5, None, 3],
        [3_000 - start_ns, "dlobd", 7, 3_001, 4, 2, None],
        [3_000 - start_ns, "host", None, 6_000, 5, None, 3],
    ]
