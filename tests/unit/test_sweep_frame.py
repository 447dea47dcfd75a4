"""A sweep as a data frame and as a file, from generated bundles."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dlobd
from dlobd.bundle import store
from dlobd.compare import sweep_frame
from dlobd.errors import BundleError
from dlobd.experiment import files, series
from dlobd.run.series_runner import Series, StartedRun
from tests.records import layer_row, run_record


def swept(out: Path, walls: dict[tuple[int, int], Any]) -> Series:
    """Return a series over workers; `walls` maps (workers, repeat) to seconds or to a status other than ok."""
    base = files.load("softmax-mnist-quick", ["name=s"])
    points = {f"workers={n}": dataclasses.replace(base, workers=n) for n in sorted({n for n, _ in walls})}
    begun = []
    for (workers, repeat), wall_s in walls.items():
        bundle = store.create(out, "s")
        bad = {"status": wall_s, "reason": "a rank died"} if isinstance(wall_s, str) else {}
        wall_ns = 10 if bad else round(wall_s * 1e9)
        spark_ns, rest_ns = wall_ns * 6 // 10, wall_ns * 4 // 10
        layers = [layer_row("spark", "x", spark_ns), layer_row("tensorflow", "x", rest_ns)]
        values = {"wall_ns": wall_ns, "layers": layers, "unattributed_ns": 0, **bad}
        bundle.write(
            run_record(bundle.run_id, configuration=dataclasses.asdict(points[f"workers={workers}"]), **values)
        )
        bundle.seal()
        begun.append(StartedRun(repeat, f"workers={workers}", bundle.run_id, 3.0))
    made = Series(points, 4, out, tuple(begun), axes=("workers",), scaling="weak")
    series.write(made)
    return made


def test_the_frame_has_a_row_a_run(tmp_path: Path) -> None:
    made = swept(tmp_path, {(1, 1): 4, (2, 1): 3, (1, 2): 5, (2, 2): "failed"})
    found = dlobd.load_sweep(made.path)
    assert list(found["point"]) == ["workers=1", "workers=2", "workers=1", "workers=2"]
    assert list(found["workers"]) == [1, 2, 1, 2]
    assert list(found["repeat"]) == [1, 1, 2, 2]
    assert list(found["status"]) == ["ok", "ok", "ok", "failed"]
    assert list(found["wall_ns"][:3]) == [4_000_000_000, 3_000_000_000, 5_000_000_000]
    assert found["spark_ns"][0] == 2_400_000_000
    assert found["user_ns"][0] == 0
    assert pd.isna(found["channel_ns"][0])
    assert found.attrs == {"axes": ["workers"], "scaling": "weak", "seed": 4}
    assert set(sweep_frame.COLUMNS) | {"workers"} == set(found.columns)
    assert Path(found["bundle"][0]).is_dir()


def test_the_frame_is_written_beside_the_series(tmp_path: Path) -> None:
    made = swept(tmp_path, {(1, 1): 4, (2, 1): 3})
    path = sweep_frame.write_csv(made)
    assert path == tmp_path / f"sweep-{made.key}.csv"
    again = pd.read_csv(path)
    assert list(again["wall_ns"]) == [4_000_000_000, 3_000_000_000]
    assert again["channel_ns"].isna().all()


def test_a_series_without_runs_has_an_empty_frame(tmp_path: Path) -> None:
    base = files.load("softmax-mnist-quick")
    assert list(sweep_frame.frame(Series({"a": base}, 0, tmp_path)).columns) == list(sweep_frame.COLUMNS)
    (tmp_path / "x.json").write_text(json.dumps({"series_version": 1}))
    with pytest.raises(BundleError, match="damaged"):
        dlobd.load_sweep(tmp_path / "x.json")
