"""The noise of a machine: what it says of runs, and what it cannot say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle.noise import run_variation
from dlobd.bundle.store import Bundle
from dlobd.report.sentences import smallest_share
from dlobd.run import machine_noise
from dlobd.run.machine_noise import Noise
from tests.records import run_record

QUIET = Noise(50, 60_000, 90_000, 0.01, 1.02, 0.0, 20_000, 40_000, 0.1)
S = 10**9


def after(*walls_s: float) -> Noise:
    return dataclasses.replace(QUIET, earlier_walls_ns=tuple(int(wall_s * S) for wall_s in walls_s))


def test_more_runs_show_smaller_effects() -> None:
    near = after(40, 41, 42, 43, 44, 45)
    variation = run_variation(near.earlier_walls_ns or ())
    assert variation == pytest.approx(1.8708 / 42.5, rel=1e-4)
    assert smallest_share(near, 64) == pytest.approx((smallest_share(near, 16) or 0) / 2, rel=0.05)
    assert smallest_share(near, 64) == pytest.approx(2.8 * (variation or 0) * (2 / 64) ** 0.5, rel=0.02)
    assert (smallest_share(after(30, 35, 40, 45, 50, 55), 6) or 0) > 2 * (smallest_share(near, 6) or 1)
    assert smallest_share(QUIET, 6) is smallest_share(after(40, 41, 42, 43, 44), 6) is None
    assert smallest_share(near, 1) is None


def stored(out: Path, number: int, **changes: Any) -> Bundle:
    run_id = f"20260102T03{number:02}05Z-0a1b"
    bundle = Bundle(out / "experiment" / run_id)
    bundle.path.mkdir(parents=True)
    (bundle.path / "run.json").write_text(json.dumps(run_record(run_id, **changes)))
    return bundle


def test_earlier_runs_are_those_of_the_experiment_and_the_machine(tmp_path: Path) -> None:
    here = {"host": "a", "processor": "p", "cores": 2, "memory_bytes": 1, "kernel": "6"}
    mine = {"experiment_key": "k", "platform": here}
    for number, wall_ns in enumerate((5 * S, 7 * S, 6 * S), 1):
        stored(tmp_path, number, wall_ns=wall_ns, **mine)
    stored(tmp_path, 4, wall_ns=S, **mine | {"experiment_key": "other"})
    stored(tmp_path, 5, wall_ns=S, **mine | {"platform": here | {"host": "b"}})
    stored(tmp_path, 6, wall_ns=S, **mine, status="failed", reason="died")
    for number, text in ((7, "{"), (8, "[]"), (9, '{"status": "ok", "wall_ns": 1}')):
        (stored(tmp_path, number).path / "run.json").write_text(text)
    new = stored(tmp_path, 10, wall_ns=S, **mine)
    (tmp_path / "experiment" / "latest").symlink_to(new.path)
    record = json.loads((new.path / "run.json").read_text())
    assert machine_noise.earlier_walls_ns(new, record) == [5 * S, 7 * S, 6 * S]
    assert machine_noise.earlier_walls_ns(Bundle(tmp_path / "none" / new.run_id), record) == []


def test_the_number_of_earlier_runs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_noise, "MAX_BUNDLES", 2)
    for number in range(4):
        bundle = stored(tmp_path, number, wall_ns=(number + 1) * S)
    record = json.loads((bundle.path / "run.json").read_text())
    assert machine_noise.earlier_walls_ns(bundle, record) == [2 * S, 3 * S]
