"""`dlobd report`: one file, one line for what is wrong, documented exit codes."""

from __future__ import annotations

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
    assert out == "Wrote report.html\n"
    assert err == ""
    first, last = sorted((run_id("native-run"), run_id("quick-run")))
    assert last in (runs / "report.html").read_text()
    assert cli.main(["report", first[:-4], "latest", last, "-o", "both.html"]) == 0
    page = (runs / "both.html").read_text()
    assert page.count('class="one" aria-label="Run ') == 2
    assert f"Run {last} was given more than once" in page


def test_a_file_is_not_overwritten_unless_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "report.html").write_text("mine")
    assert cli.main(["report"]) == 2
    assert "add --force" in capsys.readouterr().err
    assert (runs / "report.html").read_text() == "mine"
    assert cli.main(["report", "--force"]) == 0
    assert (runs / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("words", [["report", "nonsense"], ["report", "--out", "elsewhere"], ["report", "empty"]])
def test_what_is_no_run_is_one_line(words: list[str], runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "empty").mkdir()
    assert cli.main(words) == 7
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (runs / "report.html").exists()


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
    assert cli.main(["report", str(bundle.path)]) == 0
    assert "No timeline" in (runs / "report.html").read_text()


def test_a_place_that_cannot_be_written_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "-o", "nowhere/report.html"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_index_lists_all_runs_with_links_that_work(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "runs" / "softmax-mnist-quick" / "20260102T030405Z-0a1b").mkdir()
    report = runs / "runs" / "softmax-mnist-quick" / f"{run_id('quick-run')}.html"
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
    assert (f"softmax-mnist-quick/{report.name}", "report") in links
    assert all((runs / "runs" / link).exists() for link, _ in links)
    assert "<title>3 runs, 2026-01-02 to " in page


def test_an_index_of_no_directory_or_with_runs_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--index", "nowhere"]) == 2
    assert cli.main(["report", "latest", "--index", "runs"]) == 2
    assert cli.main(["report", "--index", "runs", "-o", "list.html"]) == 0
    assert 'href="./runs/softmax-mnist-quick/' in (runs / "list.html").read_text()
    assert cli.main(["report", "--index", "runs", "-o", "list.html"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3
