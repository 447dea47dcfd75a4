"""The scripts of analysis/ that compare many runs, on generated runs whose answer is known, and on captured bundles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.analysis_scripts import script
from tests.chosen_runs import on_disk, record, trained


def test_scaling_of_a_sweep(tmp_path: Path) -> None:
    """From the sweep's file: what is kept, a row a number of workers, the layers of each, and the two pictures."""
    records = [
        record({"spark": 10 + r / 100, "tensorflow": 20 / n}, rate=300 * n, workers=n) for n in (1, 2) for r in range(6)
    ]
    path = on_disk(tmp_path / "runs", records, ("workers",))
    done = script("scaling.py", path, "-o", tmp_path / "new", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Weak scaling: every worker has the batch of 100")
    assert "warning: All workers shared one machine of 2 cores" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.split()[:4] == ["all", "runs", "2", "6"]]
    assert row.split()[4:10] == ["20", "(20", "to", "20.1;", "96.9", "%)"]
    assert row.split()[-6:] == ["1", "(1", "to", "1;", "96.9", "%)"]
    assert re.search(r"^all runs, 2 +10\.025 +10\.000 +20\.025$", done.stdout, re.MULTILINE)
    drawn(tmp_path / "new", "scaling", done.stdout)


def test_the_breakdown_by_model(tmp_path: Path) -> None:
    """Seconds first, then percent; runs that are alike are one row, and one that is not ok is left out and named."""
    models = {"lenet": (2.0, 4.0), "mlp": (8.0,), "resnet20": (1.0,)}
    records = [record({"spark": 2, "tensorflow": s}, model=model) for model, each in models.items() for s in each]
    path = on_disk(tmp_path / "runs", records, ("model",), status="failed")
    done = script("breakdown_by_model.py", path, "-o", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["lenet", "2.000", "3.000", "5.000"] in rows
    assert ["mlp", "2.000", "8.000", "10.000"] in rows
    assert rows.index(["lenet", "2.000", "3.000", "5.000"]) < rows.index(["lenet", "40.0", "60.0", "100.0"])
    assert ["mlp", "20.0", "80.0", "100.0"] in rows
    assert done.stdout.startswith(f"left out: run {records[-1]['run_id']} is failed: a rank died")
    assert not any(row[:1] == ["resnet20"] for row in rows)
    drawn(tmp_path, "breakdown-by-model", done.stdout)


def test_the_breakdown_of_one_model_by_other_settings(tmp_path: Path) -> None:
    ways = {"tfos": "feed", "distributor": "read"}
    records = [
        record({"spark": n}, workers=n, launcher=how, input=source) for n in (2, 1) for how, source in ways.items()
    ]
    done = script("breakdown_by_model.py", on_disk(tmp_path / "runs", records, ("workers", "launcher")), cwd=tmp_path)
    labels = re.findall(r"^softmax-regression (\S+ \S+) ", done.stdout, re.MULTILINE)
    each = [f"workers={n} launcher={how}" for n in (1, 2) for how in ("distributor", "tfos")]
    assert labels == each + each


def test_sensitivity_of_a_sweep(tmp_path: Path) -> None:
    """The launcher decides over Spark, the workers over TensorFlow; limits of so few runs are said."""
    records = [
        record({"spark": {"tfos": 5, "barrier": 9}[how], "tensorflow": 9 / n}, workers=n, launcher=how)
        for n in (1, 3)
        for how in ("tfos", "barrier")
        for _ in range(3)
    ]
    path = on_disk(tmp_path / "runs", records, ("workers", "launcher"))
    done = script("sensitivity.py", path, "-o", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Sensitivity over workers: 1, 3; launcher: barrier, tfos")
    assert "with 3 runs of each point is unknown" in done.stdout
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in done.stdout.splitlines()}
    assert float(rows["Spark", "launcher"][0]) == pytest.approx(1, abs=0.02)
    assert float(rows["Spark", "workers"][0]) == pytest.approx(0, abs=0.02)
    assert float(rows["TensorFlow", "workers"][0]) == pytest.approx(1, abs=0.02)
    drawn(tmp_path, "sensitivity", done.stdout)


def test_accuracy_over_time(tmp_path: Path) -> None:
    records = [trained((0.5, None, 0.7 + r / 10), target=0.75, launcher="tfos") for r in range(3)]
    records += [trained((0.9,), target=0.75, launcher="barrier"), trained((None,), launcher="tfos-stock")]
    done = script("accuracy.py", on_disk(tmp_path / "runs", records, ("launcher",)), "-o", tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    rows = {tuple(line[:3]): " ".join(line[3:]) for line in lines}
    assert rows["launcher=tfos", "1", "3"] == "0.5 [0.5 to 0.5] 1 [1 to 1] 10 [10 to 10] 6 [6 to 6]"
    third = "0.8 [0.7 to 0.9] 0.333 [0.333 to 0.333] 30 [30 to 30] 26 [26 to 26]"
    assert rows["launcher=tfos", "3", "3"] == third
    assert rows["launcher=barrier", "1", "1"] == "0.9 1 10 6"
    assert ("launcher=tfos", "2", "3") not in rows
    assert [
        "launcher=tfos",
        "0.75",
        "2",
        "of",
        "3",
        "runs",
        "30",
        "[30",
        "to",
        "30]",
        "26",
        "[26",
        "to",
        "26]",
    ] in lines
    assert ["launcher=barrier", "0.75", "1", "of", "1", "runs", "10", "6"] in lines
    assert f"left out: run {records[-1]['run_id']} has no evaluated epoch" in done.stdout
    drawn(tmp_path, "accuracy", done.stdout)


def drawn(directory: Path, name: str, printed: str) -> None:
    """Both pictures are there, and their paths are the last two lines."""
    assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (directory / f"{name}.svg").read_text()
    assert printed.splitlines()[-2:] == [str(directory / f"{name}.png"), str(directory / f"{name}.svg")]
