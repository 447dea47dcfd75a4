"""`dlobd history`: a row per bundle, filters, orders, and only as many reads as needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlobd import cli
from dlobd.bundle import reading
from dlobd.bundle.store import Bundle, bundles
from dlobd.report import history
from tests.records import run_record

DAMAGED = "20260105T000000Z-0005"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a directory with four runs of two experiments, and a bundle with a damaged run.json."""
    runs = (
        ("one", "20260101T000000Z-0001", {"wall_ns": 3_000_000_000, "status": "ok"}),
        ("one", "20260102T000000Z-0002", {"wall_ns": 9_000_000_000, "status": "failed", "reason": "because"}),
        ("two", "20260103T000000Z-0003", {"wall_ns": 5_000_000_000, "status": "ok"}),
        ("two", "20260104T000000Z-0004", {"wall_ns": None, "layers": [], "status": "interrupted", "metrics": {}}),
    )
    for experiment, run_id, changes in runs:
        path = tmp_path / experiment / run_id
        path.mkdir(parents=True)
        record = run_record(run_id, experiment=experiment, **changes)
        record["phases"] = [{"phase": "training", "ns": 1_500_000_000}] if record["layers"] else []
        (path / "run.json").write_text(json.dumps(record))
    (tmp_path / "two" / DAMAGED).mkdir()
    (tmp_path / "two" / DAMAGED / "run.json").write_text('{"status": "ok"')
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], out: Path, *words: str) -> list[str]:
    """Return the last digits of the listed run IDs, in their order."""
    assert cli.main(["history", "--out", str(out), "--json", *words]) == 0
    return [row["run_id"][-1] for row in json.loads(capsys.readouterr().out)]


def test_the_table_has_a_line_per_run_with_the_newest_first(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", "--out", str(out)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "run date (UTC) experiment status largest layer wall, s training, s"
    assert [line.split() for line in lines] == [
        [DAMAGED, "2026-01-05", "00:00", "two", "unreadable", "-", "-", "-"],
        ["20260104T000000Z-0004", "2026-01-04", "00:00", "two", "interrupted", "-", "-", "-"],
        ["20260103T000000Z-0003", "2026-01-03", "00:00", "two", "ok", "Spark", "12", "%", "5.0", "1.5"],
        ["20260102T000000Z-0002", "2026-01-02", "00:00", "one", "failed", "Spark", "7", "%", "9.0", "1.5"],
        ["20260101T000000Z-0001", "2026-01-01", "00:00", "one", "ok", "Spark", "20", "%", "3.0", "1.5"],
    ]


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("", "54321"),
        ("one", "21"),
        ("one two", "54321"),
        ("--status ok", "31"),
        ("--status failed --status interrupted", "42"),
        ("--sort wall", "23154"),
        ("--sort experiment --status ok", "13"),
        ("--sort training -n 2", "32"),
        ("-n 2", "54"),
        ("two -n 1 --status ok", "3"),
        ("--limit 0", "54321"),
    ],
)
def test_filters_orders_and_limits(words: str, runs: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, out, *words.split()) == [*runs]


def test_the_newest_runs_are_listed_without_a_read_of_the_others(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    read = reading.read_json

    def noted(path: Path, shape: type) -> object:
        seen.append(path.parent.name)
        return read(path, shape)

    monkeypatch.setattr(reading, "read_json", noted)
    assert len(history.rows(bundles(out), limit=2)) == 2
    assert seen == [DAMAGED, "20260104T000000Z-0004"]


def test_a_row_has_the_figures_of_its_run(captured: object) -> None:
    path = Path(__file__).parents[1] / "data" / "quick-run"
    run, row = Bundle(path).read(), history.row(Bundle(path))
    largest = max(run.layers, key=lambda layer: layer.ns)
    assert (row.status, row.wall_ns, row.training_ns) == (run.status, run.wall_ns, run.metrics.training_ns)
    assert (row.layer, row.layer_ns) == (largest.layer, largest.ns)


def test_a_directory_without_runs_and_a_wrong_column_are_named(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["history", "--out", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'none'}\n"
    assert cli.main(["history", "--out", str(out), "--sort", "wal"]) == 2
    assert capsys.readouterr().err == "dlobd: Unknown column 'wal'; did you mean 'wall'? Next: dlobd history --help\n"
    assert cli.main(["history", "--out", str(out), "-n", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 runs in total: --limit 0 lists all"
