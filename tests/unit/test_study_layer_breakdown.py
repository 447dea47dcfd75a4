"""The overhead table and its picture: right means, no silent zero, equal bytes for equal tables."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from analysis.studies import pictures
from analysis.studies.layer_breakdown import COLUMNS, overhead_table, picture
from dlobd.errors import UsageError
from dlobd.record.run import Run
from tests.records import layer_row

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
