"""The scripts of analysis/, run as a person runs them, on captured bundles."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.analysis_scripts import TOP, script
from tests.page_traces import copied
from tests.repeats import experiment, on_disk, record

DATA = TOP / "tests" / "data"


def test_the_overhead_table_of_a_real_run(tmp_path: Path) -> None:
    done = script("layer_breakdown.py", DATA / "quick-run", "-o", tmp_path / "new", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    run = json.loads((DATA / "quick-run" / "run.json").read_text())
    spark = next(layer for layer in run["layers"] if layer["layer"] == "spark")
    row = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["Spark"])
    assert row.split()[1:3] == ["1", f"{spark['ns'] / 1e9:.3f}"]
    wall = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["wall"])
    assert wall.split()[2] == f"{run['wall_ns'] / 1e9:.3f}"
    assert (tmp_path / "new" / "layer-breakdown.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "layer-breakdown.svg").read_text()
    assert done.stdout.splitlines()[-1] == str(tmp_path / "new" / "layer-breakdown.svg")


def test_a_run_that_is_not_ok_is_marked(tmp_path: Path) -> None:
    done = script("layer_breakdown.py", DATA / "killed-trainer", cwd=tmp_path)
    assert done.returncode == 0
    assert re.search(r"^run \S+ is failed: ", done.stdout, re.MULTILINE)
    done = script("layer_breakdown.py", DATA / "quick-run", DATA / "killed-trainer", cwd=tmp_path)
    assert done.returncode == 2
    assert "it cannot be part of a mean" in done.stderr


def test_stack_overhead_of_real_runs(tmp_path: Path) -> None:
    """A native and a fed run of one job: seconds on top of native, by layer, the published figures, two pictures."""
    runs = [DATA / name / "run.json" for name in ("native-run", "quick-run")]
    done = script("stack_overhead.py", *runs, "-o", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    native, stack = (json.loads(path.read_text()) for path in runs)
    more = f"{(stack['wall_ns'] - native['wall_ns']) / 1e9:.3g}"
    row = next(line.split() for line in done.stdout.splitlines() if line.split()[:2] == ["tfos", "feed"])
    assert row[2:5] == ["1", f"{stack['wall_ns'] / 1e9:.3g}", more]
    assert "warning: Runs without a series are paired" in done.stdout
    assert "15.5 %" in done.stdout
    assert (tmp_path / "stack-overhead.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "stack-overhead.svg").read_text()


def test_amortisation_of_a_series(tmp_path: Path) -> None:
    every, ways = [], (("native", 9.0), ("barrier feed", 30.0))
    for repeat in range(1, 7):
        for way, fixed_s in ways:
            for epochs in (1, 2, 3, *((8,) if repeat == 1 else ())):
                layers, each_s = {"tensorflow": fixed_s + 2 * epochs}, [2.0] * epochs
                run = record(len(every), experiment(way, epochs=epochs), layers, sum(each_s), each_s)
                every.append((repeat, run))
    done = script("amortisation.py", on_disk(tmp_path / "runs", every), "-o", tmp_path, "--epochs", 20, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    for words in (
        "barrier feed 6 30 (30 to 30) 2 (2 to 2) 206 (206 to 206) 96.9%",
        "barrier feed 20 70 (70 to 70) 0% 1.43 (1.43 to 1.43)",
    ):
        assert words.split() in lines
    assert [line[-1] for line in lines if line[2:3] == ["8"] or line[1:2] == ["8"]] == ["inside", "inside"]
    assert (tmp_path / "amortisation.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "amortisation.svg").read_text()


QUICK = DATA / "quick-run"


@pytest.mark.parametrize(
    ("name", "words", "code", "said"),
    [
        ("layer_breakdown", ["none"], 7, "there is no run"),
        ("layer_breakdown", [QUICK, DATA / "killed-trainer"], 2, "cannot be part of a mean"),
        ("stack_overhead", [QUICK], 2, "No native run has status ok"),
        ("stack_overhead", [DATA / "own-run"], 2, "your own script"),
        ("stack_overhead", ["series-none.json"], 7, "cannot be read"),
        ("amortisation", [QUICK], 2, "no repeat with runs of several numbers of epochs"),
        ("resource_use", [DATA / "own-run"], 2, "has no samples of its resources"),
        ("scaling", [QUICK], 2, "no runs differ only in workers"),
        ("sensitivity", [QUICK], 2, "do not differ in any setting"),
        ("sensitivity", [QUICK, DATA / "native-run"], 2, "Sensitivity needs 3 runs of every combination"),
        ("accuracy", [DATA / "killed-trainer"], 2, "None of the runs is ok"),
        ("breakdown_by_model", ["series-x.json"], 7, "cannot be read"),
        ("breakdown_by_model", [DATA / "own-run"], 2, "is of your own script"),
        ("breakdown_by_model", [DATA / "killed-trainer"], 2, "None of the runs is ok"),
        ("breakdown_by_model", [QUICK, "-o", "series-x.json/x"], 2, "cannot be used"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    words: list[object],
    code: int,
    said: str,
) -> None:
    """The documented exit code, no picture. In this process: each import of pandas takes a second."""
    (tmp_path / "series-x.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["analysis", name, *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOP / "analysis"), run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, said in line) == (code, True), line
    assert list(tmp_path.iterdir()) == [tmp_path / "series-x.json"]


def test_accuracies_without_an_evaluated_epoch_are_refused(tmp_path: Path) -> None:
    bundle = copied("quick-run", tmp_path, lambda record: record.update(epochs=[]))
    done = script("accuracy.py", bundle.path, cwd=tmp_path)
    assert done.returncode == 2
    assert "No epoch of these runs was evaluated" in done.stderr


def test_the_cost_of_a_span_is_measured(tmp_path: Path) -> None:
    done = script("span_cost.py", "--spans", 500, "--repeats", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cost = dict(re.findall(r"^(on|off) +(\d+) ns per span", done.stdout, re.MULTILINE))
    assert int(cost["on"]) > int(cost["off"])


def test_the_width_of_clock_offsets_is_measured(tmp_path: Path) -> None:
    """By processes of two clocks, where this user may make another one; the truth is always inside."""
    done = script("clock_width.py", "--exchanges", 200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(re.findall(r"each pair: median ([\d.]+) us", done.stdout)[0]) > 0
    (inside, of) = re.findall(r"inside in (\d+) of (\d+)", done.stdout)[0]
    assert inside == of != "0"


def test_scripts_stay_short() -> None:
    """What is longer than 60 lines belongs into analysis/studies."""
    scripts = list((TOP / "analysis").glob("*.py"))
    assert len(scripts) >= 2
    assert all(len(path.read_text().splitlines()) <= 60 for path in scripts)
