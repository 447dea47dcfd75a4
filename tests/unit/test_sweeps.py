"""Sweep files: their points, their errors by file and line, and the frame of their runs."""

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
from dlobd.errors import BundleError, UsageError
from dlobd.experiment import files, series, sweeps
from dlobd.experiment.sweeps import Sweep
from dlobd.run.series_runner import Series, StartedRun
from tests.records import layer_row, run_record

BASE = 'extends = "softmax-mnist-quick"\n'


def load(tmp_path: Path, text: str, told: list[str] | None = None) -> Sweep:
    path = tmp_path / "s.toml"
    path.write_text(BASE + text)
    return sweeps.load(path, told.append if told is not None else lambda line: None)


def test_the_points_are_all_combinations(tmp_path: Path) -> None:
    found = load(tmp_path, 'epochs = 3\n[axes]\nworkers = [1, 2]\nlauncher = ["tfos", "barrier"]\nseed = [7]\n')
    assert (found.axes, found.scaling, found.impossible) == (("workers", "launcher"), "weak", {})
    assert list(found.points) == [f"workers={n} launcher={how}" for n in (1, 2) for how in ("tfos", "barrier")]
    settings = ["epochs=3", "workers=1", "launcher=barrier", "seed=7", "name=s"]
    assert found.points["workers=1 launcher=barrier"] == files.load("softmax-mnist-quick", settings)
    found = load(tmp_path, '[axes]\nchannel = ["tcp", "tcp@10.77.2.0/24"]\n')
    assert list(found.points) == ["channel=tcp", "channel=tcp@10.77.2.0/24"]
    assert found.points["channel=tcp@10.77.2.0/24"].name == "s"


def test_strong_scaling_keeps_the_global_batch(tmp_path: Path) -> None:
    found = load(tmp_path, '[axes]\nworkers = [1, 2, 4]\n[sweep]\nscaling = "strong"\n')
    assert [(p.workers, p.batch_size) for p in found.points.values()] == [(1, 200), (2, 100), (4, 50)]
    weak = load(tmp_path, "[axes]\nworkers = [1, 2, 4]\n[sweep]\nfit_train_samples = true\n")
    assert {p.batch_size for p in weak.points.values()} == {100}
    both = load(tmp_path, '[axes]\nworkers = [1, 2]\nbatch_size = [50, 100]\n[sweep]\nscaling = "strong"\n')
    assert [p.workers * p.batch_size for p in both.points.values()] == [100, 200, 100, 200]
    found = load(tmp_path, 'workers = 4\n[axes]\nworkers = [1, 2]\n[sweep]\nscaling = "strong"\n')
    assert [(p.workers, p.batch_size) for p in found.points.values()] == [(1, 400), (2, 200)]


def test_training_samples_are_fitted_to_all_points_alike(tmp_path: Path) -> None:
    told: list[str] = []
    found = load(tmp_path, "[axes]\nworkers = [1, 2, 7]\n[sweep]\nfit_train_samples = true\n", told)
    assert {p.train_samples for p in found.points.values()} == {5600}
    assert told == ["train_samples=5600 instead of 6000: all points divide it into full batches"]
    with pytest.raises(UsageError, match=r"s\.toml:5: train_samples 6000 is less than 9900, the least"):
        load(tmp_path, "[axes]\nworkers = [9, 11]\n[sweep]\nfit_train_samples = true\n")


def test_every_impossible_combination_is_named(tmp_path: Path) -> None:
    text = '[axes]\nworkers = [1, 2, 7]\nlauncher = ["tfos", "native"]\ninput = ["feed"]\n[sweep]\nscaling = "strong"\n'
    found = load(tmp_path, text)
    assert list(found.points) == ["workers=1 launcher=tfos", "workers=2 launcher=tfos"]
    why = found.impossible
    assert sorted(why) == [
        f"workers={n} launcher={how}" for n, how in ((1, "native"), (2, "native"), (7, "native"))
    ] + ["workers=7 launcher=tfos"]
    assert "launcher native needs scheduler=none and input=read" in why["workers=1 launcher=native"]
    assert "s.toml:7: scaling strong: the global batch of 200 cannot be divided" in why["workers=7 launcher=tfos"]
    assert all("\n" not in line for line in why.values())


def test_excluded_points_and_implied_settings(tmp_path: Path) -> None:
    axes = '[axes]\nworkers = [1, 2]\nlauncher = ["tfos", "barrier"]\n'
    found = load(tmp_path, f'{axes}[[exclude]]\nworkers = 2\nlauncher = "tfos"\n')
    assert found.excluded == ("workers=2 launcher=tfos",)
    assert len(found.points) == 3
    assert len(load(tmp_path, f"{axes}[[exclude]]\nworkers = 2\n").points) == 2
    told: list[str] = []
    load(tmp_path, 'input = "read"\n[axes]\nworkers = [1, 2]\nlauncher = ["barrier", "native"]\n', told)
    assert told == ["implied by launcher=native: scheduler=none"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"s\.toml has no table \[axes\]"),
        ("[axes]\n", r"s\.toml:2: \[axes\] has no axis"),
        ("[axes]\nworkers = []\n", r"s\.toml:3: axis workers is empty"),
        ("[axes]\nworkers = 2\n", r"s\.toml:3: axis workers must be a list, not 2"),
        ("[axes]\nworkrs = [1]\n", r"s\.toml:3: Unknown axis 'workrs'; did you mean 'workers'"),
        ('[axes]\nname = ["a"]\n', r"s\.toml:3: Unknown axis 'name'"),
        ("[axes]\nworkers = [1, 2, 1]\n", r"s\.toml:3: axis workers has 1 twice"),
        ("[axes]\nmomentum = [0, 0.0]\n", r"s\.toml:3: axis momentum has 0\.0 twice"),
        ('[axes]\nworkers = [1, "two"]\n', r"s\.toml:3: workers must be an integer, not a string"),
        ("workers = 2\n[axes]\nworkers = [1, 2]\n", r"s\.toml:2: workers is both a key and an axis"),
        ("[axes]\nseed = [1]\n[sweep]\nscale = 1\n", r"s\.toml:5: Unknown key of \[sweep\] 'scale'"),
        ('[axes]\nseed = [1]\n[sweep]\nscaling = "big"\n', r"s\.toml:5: scaling must be weak or strong, not 'big'"),
        ('[axes]\nseed = [1]\n[sweep]\nscaling = "strong"\n', r"s\.toml:5: scaling strong has no effect"),
        ("[axes]\nseed = [1]\n[sweep]\nskip_impossible = 1\n", r"s\.toml:5: skip_impossible must be true or false"),
        (
            "[axes]\ntrain_samples = [1]\n[sweep]\nfit_train_samples = true\n",
            r"s\.toml:5: fit_train_samples and axis train_samples",
        ),
        ("[axes]\nseed = [1]\n[[exclude]]\nseed = 2\n", r"s\.toml:4: exclude 1: axis seed has no value 2"),
        ("[axes]\nseed = [1]\n[[exclude]]\nworkers = 2\n", r"s\.toml:4: exclude 1: Unknown axis 'workers'"),
        ("[axes]\nseed = [1]\n[[exclude]]\n", r"s\.toml:4: exclude must be a list of tables"),
        ("[axes]\nseed = [1]\n[[exclude]]\nseed = 1\n", r"s\.toml:4: every combination is excluded"),
        (f"[axes]\nseed = {list(range(40))}\nworkers = {list(range(1, 40))}\n", r"s\.toml:2: 1560 points exceed"),
        ("[axes\n", r"s\.toml is not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        load(tmp_path, text)
    assert "\n" not in refused.value.line


def test_a_sweep_without_a_base_needs_all_settings(tmp_path: Path) -> None:
    path = tmp_path / "bare.toml"
    path.write_text("[axes]\nworkers = [1]\n")
    with pytest.raises(UsageError, match=r"bare\.toml: missing: scheduler, launcher"):
        sweeps.load(path)
    with pytest.raises(UsageError, match=r"sweep file none\.toml does not exist"):
        sweeps.load("none.toml")


def test_every_shipped_sweep_is_possible() -> None:
    shipped = files.titles("sweep")
    assert {"scaling-quick", "stack-quick"} <= {name for name, _ in shipped}
    for name, title in shipped:
        assert title
        assert sweeps.load(name).impossible == {}


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
