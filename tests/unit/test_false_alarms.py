"""Counting of false alarms, and a small count on recorded runs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench import comparisons, false_alarms, short_runs
from bench.false_alarms import ORDERS, Count
from dlobd.record.run import Run
from tests import records

TOP = Path(__file__).parents[2]
S = 10**9


def pool(scatter: float, runs: int = 40) -> list[Run]:
    chance = random.Random(1)
    made = []
    for number in range(runs):
        spent = {
            name: seconds * chance.gauss(1, scatter) for name, seconds in (("spark", 20), ("hdfs", 8), ("yarn", 6))
        }
        rows = [records.layer_row(name, name, round(seconds * S)) for name, seconds in spent.items()]
        wall_ns = sum(row["ns"] for row in rows)
        made.append(records.run(f"20260102T0304{number:02}Z-0a1b", layers=rows, wall_ns=wall_ns, unattributed_ns=0))
    return made


def test_limits_are_exact() -> None:
    assert Count(0, 59).at_most == pytest.approx(0.0495, abs=1e-4)
    assert Count(59, 59).at_least == pytest.approx(1 - 0.0495, abs=1e-4)
    assert (Count(59, 59).at_most, Count(0, 59).at_least) == (1, 0)
    assert Count(1, 4).share == 0.25


@pytest.mark.parametrize("order", ORDERS)
def test_pairs_share_no_run_and_stay_within_a_batch(order: str) -> None:
    runs = [{"batch": 1 + (number >= 25), "wall_ns": number} for number in range(35)]
    pairs = list(false_alarms._pairs(runs, order, 6, random.Random(0)))
    used = [run["wall_ns"] for pair in pairs for side in pair for run in side]
    assert sorted(used) == list(range(24))


@pytest.mark.slow
def test_false_alarms_of_recorded_runs_stay_below_five_percent() -> None:
    """Recorded short runs in six pairs: at most 2/2^6, within three standard errors. One side after the other has more,
    because a drift looks like a difference."""
    runs = short_runs.read(TOP / comparisons.SHORT)[:3000]
    blocks = false_alarms.short_alarms(runs, ORDERS[0], 6)
    assert blocks.wall.of == 250
    assert blocks.wall.share <= 2 / 2**6 + 3 * (2 / 2**6 / blocks.wall.of) ** 0.5
    after = false_alarms.short_alarms(runs, ORDERS[2], 6)
    assert after.wall.found > blocks.wall.found


def test_a_planted_layer_is_named() -> None:
    """+20 % of a layer with 4 % scatter, 12 runs of each side: named first in at least 38 of 40 checks; without
    a planted difference at most 5 % fail."""
    runs = pool(0.04)
    assert false_alarms.gates(runs, 12, 40, 0.2, ["spark", "hdfs", "yarn"]).found >= 38
    assert false_alarms.gates(runs, 12, 40).found <= 2
    assert false_alarms.runs_needed(runs, "spark") is not None


def test_a_grown_record_still_adds_up() -> None:
    (run,) = pool(0, 1)
    larger = false_alarms.grown(run, "hdfs", 0.2)
    assert (larger.wall_ns, run.wall_ns) == (round(35.6 * S), 34 * S)
    assert sum(row.ns for row in larger.layers) == larger.wall_ns


@pytest.mark.parametrize("paired", [True, False])
def test_comparisons_drawn_from_a_pool_raise_few_alarms(paired: bool) -> None:
    found = false_alarms.stack_alarms(pool(0.05), paired, 6, 100)
    assert found.wall.found <= 10
    assert found.layers.found <= 10
