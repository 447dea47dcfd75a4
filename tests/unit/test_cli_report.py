"""`dlobd report`: one file, one line for what is wrong, documented exit codes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from dlobd import cli
from tests.captured import Captured
from tests.page_traces import DATA, copied

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    for name in ("native-run", "quick-run"):
        shutil.copytree(DATA / name, tmp_path / "runs" / "softmax-mnist-quick" / run_id(name))
    return tmp_path


def run_id(name: str) -> str:
    return str(Captured.stored(name)["run_id"])


def test_a_report_has_one_or_several_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report"]) == 0
    out, err = capsys.readouterr()
    first, last = sorted((run_id("native-run"), run_id("quick-run")))
    file = runs / "runs" / "softmax-mnist-quick" / last / "report.html"
    assert out == f"Wrote {file.relative_to(runs)}\nopen: file://{file}\n"
    assert err == ""
    assert last in file.read_text()
    assert cli.main(["report"]) == 0, "it replaces its own file"
    assert cli.main(["report", first[:-4], "latest", last, "-o", "both.html"]) == 0
    page = (runs / "both.html").read_text()
    assert page.count('class="one" aria-label="Run ') == 2
    assert f"Run {last} was given more than once" in page


def test_a_file_is_not_overwritten_unless_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "report.html").write_text("mine")
    assert cli.main(["report", "-o", "report.html"]) == 2
    assert "add --force" in capsys.readouterr().err
    assert (runs / "report.html").read_text() == "mine"
    assert cli.main(["report", "-o", "report.html", "--force"]) == 0
    assert (runs / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("words", [["report", "nonsense"], ["report", "--out", "elsewhere"], ["report", "empty"]])
def test_what_is_no_run_is_one_line(words: list[str], runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "empty").mkdir()
    assert cli.main(words) == 7
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not list(runs.rglob("*.html"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["report", "-o", "x.pdf"], "-o x.pdf: the file type is unknown. Next: end the name in .html or .htm"),
        (["report", "-o", "/tmp"], "/tmp is a directory."),
        (["report", "-o", "no/r.html"], "no/r.html cannot be written: no such directory."),
        (["trace", "-o", "t.html"], "-o t.html: the file type is unknown. Next: end the name in .json"),
        (
            ["export", "--format", "spans", "-o", "s.json"],
            "-o s.json: the file type is unknown. Next: end ",
        ),
        (["export", "--format", "mlperf-log", "-o", "s.parquet"], "-o s.parquet: the file type is unknown."),
        (["export"], "--format is missing; it is one of: mlperf-log, otlp, layers, spans"),
        (["report", "--out", "foo.html"], "--out foo.html: there is no such directory of runs. Next: name an output"),
    ],
)
def test_an_output_has_a_type_of_its_command(
    words: list[str], line: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"dlobd: {line}")
    assert [path.name for path in runs.iterdir()] == ["runs"]


def test_a_minus_is_stdout(runs: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for words, begin in (
        (["report"], b"<!doctype html>"),
        (["trace"], b'{"'),
        (["export", "--format", "steps"], b'"role"'),
    ):
        assert cli.main([*words, "-o", "-"]) == 0
        out, err = capfdbinary.readouterr()
        assert (out[: len(begin)], b"Wrote" in out, err) == (begin, False, b"")
    assert [path.name for path in runs.iterdir()] == ["runs"]


def test_a_report_has_the_runs_of_a_series(runs: Path) -> None:
    begun = []
    for repeat, name in enumerate(("native-run", "quick-run"), 1):
        begun.append({"repeat": repeat, "point": "a", "run_id": run_id(name), "busy_percent": 0.0})
        point = Captured.stored(name)["configuration"]
    series = runs / "runs" / "series-0123456789ab.json"
    series.write_text(json.dumps({"series_version": 1, "seed": 0, "points": {"a": point}, "begun": begun}))
    assert cli.main(["report", str(series), "-o", "s.html"]) == 0
    assert (runs / "s.html").read_text().count('class="one" aria-label="Run ') == 2


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema_version": 99}'])
def test_a_damaged_record_is_one_line(content: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = copied("native-run", runs)
    (bundle.path / "run.json").write_text(content)
    assert cli.main(["report", str(bundle.path)]) == 7
    err = capsys.readouterr().err
    assert err.startswith("dlobd: ")
    assert len(err.strip().splitlines()) == 1


def test_damaged_evidence_is_still_a_page(runs: Path) -> None:
    bundle = copied("native-run", runs)
    shutil.rmtree(bundle.path / "spans")
    shutil.rmtree(bundle.path / "evidence")
    assert cli.main(["report", str(bundle.path), "-o", "report.html"]) == 0
    assert "No timeline" in (runs / "report.html").read_text()


def test_a_place_that_cannot_be_written_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "-o", "nowhere/report.html"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_index_lists_all_runs_with_links_that_work(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "runs" / "softmax-mnist-quick" / "20260102T030405Z-0a1b").mkdir()
    report = runs / "runs" / "softmax-mnist-quick" / run_id("quick-run") / "report.html"
    report.write_text("a page")
    assert cli.main(["report", "--index", "runs"]) == 0
    assert cli.main(["report", "--index", "runs"]) == 0  # its own file
    assert capsys.readouterr().out == "Wrote runs/index.html\n" * 2
    page = (runs / "runs" / "index.html").read_text()
    assert page.count("<tr><td>") == 3
    wall_ns = Captured.stored("quick-run")["wall_ns"]
    assert f'<td class="n">{wall_ns / 1e9:.1f}</td>' in page
    assert "unreadable" in page
    links = re.findall(r'<a href="\./([^"]*)">(\w+)</a>', page)
    assert [name for _, name in links].count("bundle") == 3
    assert (str(report.relative_to(runs / "runs")), "report") in links
    assert all((runs / "runs" / link).exists() for link, _ in links)
    assert "<title>3 runs, 2026-01-02 to " in page


def test_an_index_of_no_directory_or_with_runs_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--index", "nowhere"]) == 2
    assert cli.main(["report", "latest", "--index", "runs"]) == 2
    assert cli.main(["report", "--index", "runs", "-o", "list.html"]) == 0
    assert 'href="./runs/softmax-mnist-quick/' in (runs / "list.html").read_text()
    assert cli.main(["report", "--index", "runs", "-o", "list.html"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3
