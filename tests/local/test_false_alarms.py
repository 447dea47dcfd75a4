"""Short runs as processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import short_runs

TOP = Path(__file__).parents[2]


def test_a_short_run_is_a_process_with_a_breakdown(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv.gz"
    for _ in range(2):
        command = [sys.executable, "-m", "bench.short_runs", str(file), "--runs", "2"]
        assert "2 runs appended" in subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True).stdout
    found = short_runs.read(file)
    assert [run["batch"] for run in found] == [1, 1, 2, 2]
    for run in found:
        assert sum(run[f"{layer}_ns"] for layer in short_runs.LAYERS) == run["wall_ns"]
        assert all(run.values())


def test_a_failing_short_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = "import pathlib, sys; from bench import short_runs; short_runs.measure(pathlib.Path(sys.argv[1]) / 'inside')"
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert "a short run ended with wait status" in done.stderr
