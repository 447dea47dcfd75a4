"""A sweep of real runs of launcher native: killed with kill -9 in its second run, resumed by the same command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

import dlobd
from dlobd.experiment import series
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster]

SWEEP = """
extends = "softmax-mnist-quick"
launcher = "native"
input = "read"
train_samples = 1200
test_samples = 500
min_accuracy = 0.2

[axes]
workers = [1, 2]
"""


def test_a_killed_sweep_goes_on_where_it_was(alone: Any, tmp_path: Path) -> None:
    """The run that had ended is kept, the one that was hit is made again, and every point has its row."""
    (tmp_path / "s.toml").write_text(SWEEP)
    words = ("sweep", str(tmp_path / "s.toml"), "--out", str(alone.out))
    started = alone.start(*words)

    def second() -> list[Path]:
        return [path for path in alone.out.glob("series-*.json") if len(series.load(path).begun) == 2]

    (path,) = until(second, 300, "the second run began")
    psutil.Process(started.process.pid).kill()
    started.ended(10)
    (kept,) = series.load(path).ended().values()
    before = kept.read_json()

    ended = alone(*words, within_s=300)
    assert ended.code == 0, ended.err
    assert (kept.read_json(), kept.verify()) == (before, [])
    assert len(series.load(path).begun) == 3
    assert sum("run 2 of 2: workers=" in line for line in ended.err.splitlines()) == 1
    assert "run 1 of 2" not in ended.err
    found = dlobd.load_sweep(path)
    assert sorted(found["workers"]) == [1, 2]
    assert (found["wall_ns"] > 0).all()
    assert kept.run_id in set(found["run_id"])

    again = alone(*words, within_s=60)
    assert (again.code, again.out) == (0, ended.out)
    assert len(series.load(path).begun) == 3
