"""The training of a job in the terminal, and its cost."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from dlobd.bundle import store
from dlobd.record.run import Run
from dlobd.report.tables import cost
from dlobd.report.terminal.render import show
from dlobd.report.terminal.views import training
from tests.records import run

GOLDEN = Path(__file__).parents[1] / "golden"
RECORD = json.loads((GOLDEN / "run.json").read_text())


def shown(changes: dict[str, Any], per_hour: float | None = None, width: int = 80) -> str:
    record = deepcopy(RECORD) | changes
    store.validate(record, "test")
    text = io.StringIO()
    console = Console(file=text, width=width)
    if per_hour is None:
        training(Run.from_json(record), console)
    else:
        show(cost(Run.from_json(record), per_hour), console)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def test_the_whole_view_is_as_agreed() -> None:
    assert shown({}) == (GOLDEN / "training.txt").read_text()
    assert max(cell_len(line) for line in shown({}, width=200).splitlines()) <= 119


def test_unknown_figures_are_not_shown() -> None:
    assert shown({"throughput": None, "epochs": [], "time_to_accuracy": None, "first_touch": None}) == ""
    text = io.StringIO()
    training(run(), Console(file=text))
    assert text.getvalue() == ""
    only = shown({"epochs": RECORD["epochs"][1:]})
    assert "Epochs" not in only
    assert "Epochs" in shown({})
    speed = deepcopy(RECORD["throughput"])
    speed["step"] |= {"p90_ns": None, "p95_ns": None, "p99_ns": None}
    printed = shown({"throughput": speed}).splitlines()
    assert ["step", "20.100", "-", "-", "-", "61.000"] in [line.split() for line in printed]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"epoch": None, "from_submit_ns": None, "from_first_touch_ns": None, "reason": "no epoch was evaluated"},
            "target accuracy 0.9200 was not reached: no epoch was evaluated",
        ),
        (
            {"from_first_touch_ns": None},
            "reached by epoch 2: 35.900 s from submit, unknown from the first touch of the data",
        ),
    ],
)
def test_an_accuracy_that_was_missed_and_a_clock_that_is_unknown(changes: dict[str, Any], line: str) -> None:
    found = shown({"time_to_accuracy": RECORD["time_to_accuracy"] | changes})
    assert line in " ".join(found.split("\n\n")[-1].split())


def test_cost_is_price_times_time() -> None:
    metrics = RECORD["metrics"] | {"training_ns": 10_800_000_000}
    assert shown({"metrics": metrics}, per_hour=36).splitlines()[1:] == [
        "Cost at 36 per hour for the whole cluster",
        "part              cost seconds",
        "run                0.5  50.000",
        "training         0.108  10.800",
        "to accuracy 0.92 0.359  35.900",
    ]
    unknown = shown({"time_to_accuracy": None}, per_hour=36)
    assert ["training", "-", "-"] in [line.split() for line in unknown.splitlines()]
    assert "to accuracy" not in unknown
