"""Data frames of a run, and their exports: files that can be read back, and are whole or absent."""

from __future__ import annotations

import dataclasses
import gc
import io
import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path
from types import ModuleType

import fastparquet
import pandas as pd
import pytest

import dlobd
from dlobd import cli
from dlobd import spans as kinds
from dlobd.attribution.trace import Span, Trace
from dlobd.bundle import files, store
from dlobd.cli import output
from dlobd.cli.export import FORMATS
from dlobd.errors import BundleError, UsageError
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.measures import frames
from dlobd.report.export import frame_file, perfetto
from dlobd.schema import Process
from dlobd.timeline import assemble
from tests.records import run_record
from tests.samples import host, process, sample
from tests.strategies import trace_of

DATA = Path(__file__).parents[1] / "data"
RUN = DATA / "quick-run"

HOSTILE = ["a, b", 'say "x"', "two\nlines", "cr\r", "\r\n", "=1+1", "", "NA", "ü\0"]
"""Names of spans as third-party records may have them."""


def export(*words: str) -> int:
    return cli.main(["export", str(RUN), *words])


def table(text: str, columns: dict[str, str]) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), dtype=columns, keep_default_na=False, na_values={"loss": [""]})


def _csv(*parts: pd.DataFrame) -> str:
    stream = io.StringIO(newline="")
    frame_file.write_csv(parts, stream)
    return stream.getvalue()


def parquet(path: Path) -> pd.DataFrame:
    with path.open("rb") as file:
        return fastparquet.ParquetFile(file).to_pandas()


def test_each_format_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = Path(shutil.copytree(RUN, tmp_path / "20260102T030405Z-0a1b"))
    names = {path.name for path in copy.iterdir()}
    for name in ("otlp", "layers", "spans", "steps", "epochs") * 2:  # a command replaces its own file
        assert cli.main(["export", str(copy), "--format", name]) == 0
        assert capsys.readouterr().out == f"Wrote {copy.name}/{name}{FORMATS[name].types[0]}\n"
    assert {path.name for path in copy.iterdir()} - names == {
        "epochs.csv",
        "layers.csv",
        "otlp.json",
        "spans.csv",
        "steps.csv",
    }
    assert list(tmp_path.iterdir()) == [copy]
    assert cli.main(["export", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name}:" in said for name in FORMATS)


def test_an_unknown_format_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert export("--format", "span") == 2
    expected = "dlobd: Unknown format 'span'; did you mean 'spans'? Next: dlobd export --help\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("name", ["spans", "steps", "epochs"])
def test_a_table_can_be_read_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    assert export("--format", name, "-o", str(path)) == 0
    expected: pd.DataFrame = getattr(dlobd.load(RUN), name)()
    found = table(path.read_text(), getattr(frames, name.upper()))
    assert list(found.columns) == list(getattr(frames, name.upper()))
    assert len(found) == len(expected)
    assert (name == "epochs") or len(found) > 0
    if name == "spans":
        assert [json.loads(text) for text in found.pop("attrs")] == expected.pop("attrs").tolist()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_names_and_missing_numbers_survive_csv() -> None:
    frame = pd.DataFrame({"name": HOSTILE, "ns": range(len(HOSTILE)), "attrs": [{"of": name} for name in HOSTILE]})
    text = _csv(frame)
    found = pd.read_csv(io.StringIO(text), keep_default_na=False, lineterminator="\n", engine="c")
    assert found["name"].tolist() == HOSTILE
    assert found["ns"].tolist() == frame["ns"].tolist()
    assert [json.loads(one)["of"] for one in found["attrs"]] == HOSTILE
    assert text.encode()
    frame = pd.DataFrame({"ns": [1, None], "loss": [None, 0.5]}).astype({"ns": "Int64", "loss": "float64"})
    assert pd.read_csv(io.StringIO(_csv(frame))).isna().to_numpy().tolist() == [
        [False, True],
        [True, False],
    ]


@pytest.mark.parametrize(
    ("ending", "name"), [("csv", "spans"), ("parquet", "spans"), ("json", "otlp"), ("json", "trace")]
)
def test_a_file_in_parts_is_the_whole_file(
    ending: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exports stream: few rows of a long run are in memory."""
    whole, parts = (tmp_path / f"{size}.{ending}" for size in ("whole", "parts"))
    for path in (whole, parts):
        words = ["trace"] if name == "trace" else ["export", "--format", name]
        assert cli.main([*words, str(RUN), "-o", str(path)]) == 0
        monkeypatch.setattr(frames, "PART", 50)
        monkeypatch.setattr(perfetto, "BLOCK", 50)
    if ending == "parquet":
        with parts.open("rb") as file:
            assert len(fastparquet.ParquetFile(file).row_groups) > 5
        pd.testing.assert_frame_equal(parquet(whole), parquet(parts), check_dtype=False, check_categorical=False)
    else:
        assert whole.read_bytes() == parts.read_bytes()


def test_a_trace_is_held_once() -> None:
    """The columns of the files are freed when the trace is assembled."""
    gc.collect()
    before = sum(isinstance(one, RecordedSpans) for one in gc.get_objects())
    trace, sampled = assemble.read(RUN)
    assert len(trace.spans) > 100
    assert sampled
    assert sum(isinstance(one, RecordedSpans) for one in gc.get_objects()) == before


def test_frames_of_spans_share_their_attributes() -> None:
    """A frame is built from columns: attributes that spans share are one object."""
    frame = dlobd.load(RUN).spans()
    assert len({id(attrs) for attrs in frame["attrs"]}) < len(frame) / 2


def test_an_output_without_space_is_refused_before_it_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sparse span file needs no disk; its exports would."""
    copy = Path(shutil.copytree(RUN, tmp_path / "20260102T030405Z-0a1b"))
    sparse = copy / "spans" / "driver" / "spans-1-1.jsonl"
    sparse.touch()
    os.truncate(sparse, shutil.disk_usage(tmp_path).free)
    for words in (["trace"], ["export", "--format", "otlp"], ["export", "--format", "spans", "-o", "-"]):
        assert cli.main([*words, str(copy)]) == 2
        said = capsys.readouterr().err
        assert re.match(
            r"dlobd: The output has about \d+ MB, but .* has \d+ MB of free space\. Next: .*-o FILE\n$", said
        )
    assert not (copy / "trace.json").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_half_a_surrogate_pair_is_escaped(ending: str, tmp_path: Path) -> None:
    """A record may have one; pyarrow, which pandas uses for texts where it is installed, refuses it."""
    copy = Path(shutil.copytree(RUN, tmp_path / "20260102T030405Z-0a1b"))
    broken = 0
    for spans in copy.glob("spans/*/*.jsonl"):
        text = spans.read_text()
        broken += text.count('"n":"write ')
        spans.write_text(text.replace('"n":"write ', '"n":"write \\ud800'))
    assert broken
    assert dlobd.load(copy).spans()["name"].str.startswith("write \\ud800").sum() == broken
    path = tmp_path / f"spans.{ending}"
    assert cli.main(["export", str(copy), "--format", "spans", "-o", str(path)]) == 0
    found = pd.read_csv(path) if ending == "csv" else parquet(path)
    assert found["name"].str.startswith("write \\ud800").sum() == broken


def test_parquet_is_compressed_and_smaller_than_csv(tmp_path: Path) -> None:
    for name in ("spans.csv", "spans.parquet"):
        assert export("--format", "spans", "-o", str(tmp_path / name)) == 0
    csv, small = ((tmp_path / f"spans.{ending}").stat().st_size for ending in ("csv", "parquet"))
    assert small < csv / 2
    with (tmp_path / "spans.parquet").open("rb") as file:
        chunks = {one.meta_data.path_in_schema[0]: one for one in fastparquet.ParquetFile(file).row_groups[0].columns}
    assert {one.meta_data.codec for one in chunks.values()} == {6}  # ZSTD
    assert 8 in chunks["layer"].meta_data.encodings  # RLE_DICTIONARY


def test_the_table_of_layers_is_that_of_the_frame(tmp_path: Path) -> None:
    assert export("--format", "layers", "-o", str(tmp_path / "l.csv")) == 0
    found = pd.read_csv(tmp_path / "l.csv")
    assert list(found.columns) == list(frames.ATTRIBUTION)
    assert found["ns"].sum() == dlobd.load(RUN).run.wall_ns


def test_a_run_is_loaded_by_latest_or_its_id_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for run_id in ("20260102T030405Z-0a1b", "20260202T030405Z-0a1b"):
        (tmp_path / "runs" / "e" / run_id).mkdir(parents=True)
        (tmp_path / "runs" / "e" / run_id / "run.json").write_text(json.dumps(run_record(run_id)))
    assert dlobd.load().path.name == dlobd.load("latest").path.name == "20260202T030405Z-0a1b"
    assert dlobd.load("202601").path.name == "20260102T030405Z-0a1b"
    assert dlobd.load("202601", out=tmp_path / "runs").path.name == "20260102T030405Z-0a1b"
    with pytest.raises(BundleError) as error:
        dlobd.load("1999", out="elsewhere")
    assert error.value.line == f"there is no run 1999 in {tmp_path}/elsewhere. Next: dlobd.load(RUN, out=DIRECTORY)"


def test_a_notebook_shows_a_run_and_its_layers() -> None:
    run = dlobd.load(RUN)
    wall = f"{(run.run.wall_ns or 0) / 1e9:.1f} s"
    title = f"run {run.run.run_id} of softmax-mnist-quick: ok, {wall}"
    names = ", ".join(f"{name}()" for name in ("attribution", "spans", "steps", "epochs", "resources"))
    assert repr(run) == f"<{title}; data frames: {names}>"
    assert all(callable(getattr(run, name.removesuffix("()"))) for name in frames.FRAMES)
    html = run._repr_html_()
    assert html.startswith(f"<p>{title}</p><table")
    seconds = {layer.layer: layer.ns / 1e9 for layer in run.run.layers}
    assert f"<td>Spark</td>\n      <td>{seconds['spark']:.1f}</td>" in html
    assert "<td>0.0</td>" not in html.partition("Spark")[0]


def test_parquet_has_the_types_of_the_frame(tmp_path: Path) -> None:
    path = tmp_path / "spans.parquet"
    assert export("--format", "spans", "-o", str(path)) == 0
    found, frame = parquet(path), dlobd.load(RUN).spans()
    assert list(found.columns) == list(frame.columns)
    assert found.dtypes["start_ns"] == "int64"
    assert found["start_ns"].to_list() == frame["start_ns"].to_list()
    assert [json.loads(text) for text in found["attrs"]] == frame["attrs"].to_list()
    assert list(tmp_path.iterdir()) == [path]


def _interrupted(path: Path) -> None:
    path.write_text("half")
    raise KeyboardInterrupt


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text("mine")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"trace\.json cannot be written: No space left on device"):
        output.write(path, "new")
    with pytest.raises(KeyboardInterrupt), output.writing(path) as beside:
        _interrupted(beside)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    output.write(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_links_permissions_and_long_names_stay(tmp_path: Path) -> None:
    target, link, new = tmp_path / "target", tmp_path / "link", tmp_path / ("n" * 255)
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("target")
    output.write(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    output.write(new, "")
    (tmp_path / "plain").touch()
    assert new.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, Path(f"/proc/self/fd/{reader}")):  # also as a shell's >(...) names one
            output.write(path, "text")
            assert os.read(reader, 100) == b"text"
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)


@pytest.mark.parametrize("path", ["no/such/file", "."])
def test_where_no_file_can_be_is_one_line(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"cannot be written: (No such file or|Is a) directory"):
        output.write(Path(path), "text")
    assert list(tmp_path.iterdir()) == []


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
    return trace_of(1_000, 9_000, tuple(spans))


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> store.Bundle:
    stand_in = ModuleType("dlobd.timeline.assemble")
    stand_in.read = lambda bundle: (_trace(), None)  # type: ignore[attr-defined]
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
    with pytest.raises(BundleError, match="is not a bundle"):
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


def test_a_trace_has_a_selected_part(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["trace", str(RUN), "-o", "-"]
    assert cli.main([*command, "--from", "15", "--to", "30", "--lanes", "rank-0*"]) == 0
    events = json.loads(capsys.readouterr().out)["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    assert {lanes[e["pid"], e["tid"]] for e in slices} == {"attributed wall", "rank-0", "rank-0/reader"}
    assert all(e["ts"] < 30e6 and e["ts"] + e["dur"] > 15e6 for e in slices)
    assert cli.main([*command, "--from", "3", "--to", "2"]) == 2
    assert "--to 2 is not after --from 3. Next: name a later end" in capsys.readouterr().err
    assert cli.main([*command, "--lanes", "nobody"]) == 2
    assert "--lanes nobody: the run has no such lane. Next: choose from client" in capsys.readouterr().err
