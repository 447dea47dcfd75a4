"""The studies of layers and of resource use: means, rates, pictures."""

from __future__ import annotations

import dataclasses
import json
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.studies import pictures
from analysis.studies.layer_breakdown import COLUMNS, overhead_table, picture
from analysis.studies.resource_use import ROLES, cores_by_role, draw, layer_table, rates, strips
from dlobd.attribution.trace import Segment
from dlobd.errors import UsageError
from dlobd.record.resources import HostUse, LayerUse, ResourceUse
from dlobd.record.run import Run
from tests.records import layer_row
from tests.records import run as run_of

RECORD = json.loads((Path(__file__).parents[1] / "golden" / "run.json").read_text())


def run(**changes: Any) -> Run:
    return Run.from_json(deepcopy(RECORD) | changes)


def longer() -> Run:
    layers = deepcopy(RECORD["layers"])
    next(row for row in layers if row["layer"] == "hdfs")["ns"] += 2_000_000_000
    return run(run_id="second", wall_ns=RECORD["wall_ns"] + 2_000_000_000, layers=layers)


def test_one_run_has_one_row_a_layer_and_sums_to_the_wall() -> None:
    table = overhead_table([run()])
    assert list(table.columns) == list(COLUMNS)
    assert list(table["layer"]) == [row["layer"] for row in RECORD["layers"]] + ["unattributed", "wall"]
    assert table["seconds"][:-1].sum() == pytest.approx(table["seconds"].iloc[-1], abs=1e-9) == 50.0
    assert table["percent"][:-1].sum() == pytest.approx(100, abs=1e-9)
    assert set(table["n"]) == {1}
    assert table["seconds_sd"].isna().all()
    assert table.set_index("layer").loc["wall", "unexplained_s"] == 0.95


def test_several_runs_give_mean_deviation_and_count() -> None:
    """HDFS took 0.9 s and 2.9 s: 1.9 s on average with a deviation of sqrt(2) s; the others do not vary."""
    table = overhead_table([run(), longer()]).set_index("layer")
    assert table.loc["hdfs", "n"] == 2
    assert table.loc["hdfs", "seconds"] == pytest.approx(1.9)
    assert table.loc["hdfs", "seconds_sd"] == pytest.approx(math.sqrt(2))
    assert table.loc["hdfs", "percent"] == pytest.approx((100 * 0.9 / 50 + 100 * 2.9 / 52) / 2)
    assert table.loc["spark", "seconds_sd"] == 0


def test_unmeasured_layers_are_no_zeros_and_pictures_have_two_formats(tmp_path: Path) -> None:
    channel = layer_row("channel", "network", 10**9)
    with_channel = run(not_measured=[], run_id="second", layers=[*RECORD["layers"], channel])
    table = overhead_table([run(), with_channel]).set_index("layer")
    assert (table.loc["channel", "n"], table.loc["channel", "seconds"]) == (1, 1.0)
    assert "channel" not in overhead_table([run()]).set_index("layer").index
    table = overhead_table([run()])
    with pytest.raises(UsageError, match="neither"):
        pictures.write(picture(table), tmp_path / "a.jpg")
    with pytest.raises(UsageError, match="cannot be written"):
        pictures.write(picture(table), tmp_path / "none" / "a.png")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "No run was given"),
        ([run(wall_ns=None)], "no wall time"),
        ([run(), run(status="failed", run_id="bad")], "Run bad is failed"),
        ([run(), run(experiment_key="f" * 16)], "different experiments"),
    ],
)
def test_runs_that_have_no_common_mean_are_refused(runs: list[Run], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        overhead_table(runs)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_equal_tables_give_equal_pictures(tmp_path: Path, suffix: str) -> None:
    files = [tmp_path / f"{name}{suffix}" for name in ("a", "b", "c")]
    for file, one in zip(files, (run(), run(), longer()), strict=True):
        pictures.write(picture(overhead_table([one])), file)
    first, again, other = (file.read_bytes() for file in files)
    assert first == again != other
    assert first.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


S = 10**9


def sample(at_s: float, cpu_s: float, role: str = "host", index: int = 0, **more: Any) -> dict[str, Any]:
    pid = None if role == "host" else 100 + index
    row = {"at_ns": int(at_s * S), "host": "h", "role": role, "index": index, "pid": pid, "cpu_ns": int(cpu_s * S)}
    sizes = ("disk_read_bytes", "disk_written_bytes", "loopback_bytes", "net_received_bytes", "net_sent_bytes")
    return row | {"memory_bytes": 4 * S, "gpu_busy_percent": None, **dict.fromkeys(sizes, 0), **more}


def machine(seconds: int = 4) -> list[dict[str, Any]]:
    """A sample a second of a machine that is busy with 1.5 cores and reads 3 MB/s."""
    return [sample(at, 100 + 1.5 * at, disk_read_bytes=3_000_000 * at) for at in range(seconds + 1)]


def test_rates_are_growth_between_samples() -> None:
    frame = pd.DataFrame(machine())
    at_s, busy = rates(frame, "cpu_ns")
    assert list(at_s) == [0, 1, 2, 3, 4]
    assert list(busy / S) == pytest.approx([1.5] * 4)
    assert list(rates(frame, "disk_read_bytes")[1]) == pytest.approx([3e6] * 4)
    assert len(rates(frame, "gpu_busy_percent")[1]) == 0


def test_processes_of_a_role_add_up_at_the_machines_times() -> None:
    ranks = [sample(at, 7 + 0.5 * (at - 1), "worker", index) for index in (0, 1) for at in (1, 1.5, 3)]
    small = [sample(at, 0.001 * (number + 1) * at, f"small-{number}") for number in range(ROLES + 2) for at in range(5)]
    at_s, by_role = cores_by_role(pd.DataFrame([*machine(), *ranks, *small]))
    assert list(at_s) == [0, 1, 2, 3, 4]
    assert list(by_role["worker"]) == pytest.approx([0, 1, 1, 0])
    assert next(iter(by_role)) == "worker"
    assert list(by_role)[-1] == "other"
    assert len(by_role) == ROLES + 1
    assert sum(by_role["other"]) == pytest.approx(4 * (0.001 + 0.002 + 0.003))


def test_segments_of_one_layer_become_one_strip() -> None:
    at = [0, 1, 3, 4, 10]
    names = ["spark", "spark", "yarn", "spark"]
    segments = [
        Segment(10 * S + a * S, 10 * S + b * S, layer, None, "span", ())
        for a, b, layer in zip(at, at[1:], names, strict=False)
    ]
    assert strips(segments, 10 * S) == [("spark", 0, 3), ("yarn", 3, 1), ("spark", 4, 6)]


def test_the_picture_is_the_same_each_time_and_needs_no_gpu(tmp_path: Path) -> None:
    layers = [("yarn", 0.0, 1.0), ("spark", 1.0, 2.0), ("unattributed", 3.0, 1.0)]
    frame = pd.DataFrame([*machine(), *(sample(at, at / 2, "executor", 1) for at in range(5))])
    for name in ("one.svg", "two.svg"):
        pictures.write(draw(frame, layers, 2, "r"), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert len(draw(frame, layers, 2, "r").axes) == 5
    frame.loc[frame["role"] == "host", "gpu_busy_percent"] = 30.0
    assert len(draw(frame, layers, 2, "r").axes) == 6


def used(layer: str, seconds: int) -> LayerUse:
    """A layer in which one of two cores was busy and 3 MB/s were read from disk; nothing was sent."""
    return LayerUse(
        layer, seconds * S, seconds * S, 0.5, None, seconds * S, 3_000_000 * seconds, None, 0, 0, 2_000_000 * seconds
    )


def test_the_means_by_layer_need_samples() -> None:
    host = HostUse("h", "m", 2, 8 * S, 4 * S, 2 * S, 0, S, 0, 4 * S, 0, None, 0, 0, 0)
    use = ResourceUse(S, 5, S, 1, (host,), (), (used("yarn", 1), used("spark", 3)), ())
    table = layer_table(dataclasses.replace(run_of(), resources=use))
    assert list(table["seconds"]) == [1, 3]
    assert list(table["CPU busy, %"]) == [50, 50]
    assert list(table["disk read, MB/s"]) == pytest.approx([3, 3])
    assert list(table["network, MB/s"]) == pytest.approx([2, 2])
    assert "disk written, MB/s" not in table
    assert "GPU busy, %" not in table
    with pytest.raises(UsageError, match="has no samples of its resources"):
        layer_table(run_of(resources=None))
