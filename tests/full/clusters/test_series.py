"""A sweep on a cluster of its own: killed with kill -9 after its first run, and gone on with by the same command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import dlobd
from dlobd.experiment import series
from dlobd.hadoop.embedded.processes import daemons_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

SWEEP = """
extends = "softmax-mnist-quick"
launcher = "barrier"

[axes]
workers = [1, 2]

[sweep]
scaling = "strong"
"""


def test_a_killed_sweep_goes_on_where_it_was(alone: Any, tmp_path: Path) -> None:
    """The first run is kept, the second is made, one cluster served each command, and nothing stays behind."""
    (tmp_path / "s.toml").write_text(SWEEP)
    words = ("sweep", str(tmp_path / "s.toml"), "--seed", "3", "--out", str(alone.out))
    started = alone.start(*words)
    deadline = time.monotonic() + 400
    while not (files := list(alone.out.glob("series-*.json"))) or len(series.load(files[0]).begun) < 2:
        assert started.process.poll() is None, started.ended(5)
        assert time.monotonic() < deadline, alone.bundles()
        time.sleep(0.2)
    psutil.Process(started.process.pid).kill()
    started.ended(10)
    alone.is_empty()
    ((first, kept),) = series.load(files[0]).ended().items()
    before = kept.read_json()

    ended = alone(*words, within_s=400)
    assert ended.code == 0, ended.err
    assert daemons_of(alone.work_dir) == []
    found = series.load(files[0])
    assert {cell.point for cell in found.ended()} == {"workers=1", "workers=2"}
    assert len(found.begun) == 3
    assert kept.read_json() == before
    assert kept.verify() == []
    assert "waiting for namenode, datanode-0, " in ended.err
    assert sum("cluster ready" in line for line in ended.err.splitlines()) == 1
    (second,) = {"workers=1", "workers=2"} - {first.point}
    assert any(f"run 2 of 2: {second} ok" in line for line in ended.err.splitlines())
    runs = dlobd.load_sweep(files[0])
    assert sorted(zip(runs["workers"], runs["batch_size"], runs["status"], strict=True)) == [
        (1, 200, "ok"),
        (2, 100, "ok"),
    ]
    assert ended.out.splitlines()[-1] == f"series: {files[0]}"

    again = alone(*words, within_s=60)
    assert (again.code, "daemons" in again.err) == (0, False)
    assert again.out == ended.out
