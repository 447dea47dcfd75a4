"""Rates of false alarms and of detected differences of comparisons, from A/A pairs and planted differences.

The functions of `dlobd compare` and `dlobd check` run on recorded runs. Short processes are numerous enough for
independent pairs; whole runs are resampled from a pool.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scipy.stats import beta

from bench.short_runs import LAYERS as SHORT_LAYERS
from dlobd.compare.comparison import Comparison, compare
from dlobd.compare.figures import WALL
from dlobd.compare.gate import gate
from dlobd.compare.permutation import Samples
from dlobd.compare.runset import Member, Repeat, RunSet
from dlobd.compare.verdicts import Compared, compare_family
from dlobd.record.run import Run

Values = dict[str, int]
"""Short run: batch, and nanoseconds of the wall time and each layer."""


@dataclass(frozen=True, slots=True)
class Count:
    """Number of positive cases among `of` cases."""

    found: int
    of: int

    @property
    def share(self) -> float:
        """Fraction of positive cases."""
        return self.found / self.of

    @property
    def at_most(self) -> float:
        """Exact one-sided 95 % upper confidence limit of the true fraction (Clopper and Pearson 1934)."""
        return float(beta.ppf(0.95, self.found + 1, self.of - self.found)) if self.found < self.of else 1.0

    @property
    def at_least(self) -> float:
        """Exact one-sided 95 % lower confidence limit of the true fraction."""
        return float(beta.ppf(0.05, self.found, self.of - self.found + 1)) if self.found else 0.0


@dataclass(frozen=True, slots=True)
class Alarms:
    """False alarms of A/A pairs with `size` runs per side, for the wall time and for any layer."""

    order: str
    size: int
    wall: Count
    layers: Count


ORDERS = ("blocks", "two samples, interleaved", "two samples, one after the other")
"""Orders of the runs of a pair: random within each repeat; random within each repeat, but analysed as two samples; all
runs of one side first."""


def short_alarms(runs: Sequence[Values], order: str, size: int) -> Alarms:
    """Count the false alarms of independent pairs. Each run is in one pair, and each pair in one batch."""
    chance = random.Random(f"{order} {size}")
    wall = layers = pairs = 0
    for first, second in _pairs(runs, order, size, chance):
        paired = order == ORDERS[0]
        wall += _alarm(compare_family({WALL: _samples(first, second, WALL, paired)}).values())
        layers += _alarm(
            compare_family({name: _samples(first, second, name, paired) for name in SHORT_LAYERS}).values()
        )
        pairs += 1
    return Alarms(order, size, Count(wall, pairs), Count(layers, pairs))


def short_power(runs: Sequence[Values], pilot: int, planted: float, trials: int) -> tuple[Count, list[int]]:
    """Count the trials that detect a planted difference with the number of repeats that their pilot estimated.

    The pilot has no planted difference. A trial draws repeats of two consecutive runs without replacement. The
    second result lists the numbers of repeats.
    """
    chance = random.Random(planted)
    repeats = list(_pairs(runs, ORDERS[0], 1, chance))
    found, asked = 0, []
    for _ in range(trials):
        drawn = chance.sample(repeats, len(repeats))
        before = compare_family({WALL: _paired_walls(drawn[:pilot])}, planted)[WALL]
        needed = before.runs_needed
        if needed is None:
            continue
        after = compare_family({WALL: _paired_walls(drawn[pilot : pilot + needed], 1 + planted)}, planted)[WALL]
        found += after.verdict == "slower"
        asked.append(needed)
    return Count(found, len(asked)), asked


def stack_alarms(pool: Sequence[Run], paired: bool, size: int, trials: int) -> Alarms:
    """Count the false alarms of comparisons drawn from a pool of runs in the order of their start.

    The comparisons share runs, so they are not independent. A repeat is two consecutive runs.
    """
    chance = random.Random(f"{paired} {size}")
    by_two = list(zip(pool[::2], pool[1::2], strict=False))
    wall = layers = 0
    for _ in range(trials):
        if paired:
            drawn = [chance.sample(repeat, 2) for repeat in chance.sample(by_two, size)]
            runs = [first for first, _ in drawn] + [second for _, second in drawn]
        else:
            runs = chance.sample(pool, 2 * size)
        (pair,) = _compared(runs, size, paired).pairs
        wall += _alarm([pair.wall])
        layers += _alarm(pair.layers.values())
    return Alarms("blocks" if paired else "two samples", size, Count(wall, trials), Count(layers, trials))


def gates(pool: Sequence[Run], size: int, trials: int, planted: float = 0, layers: Sequence[str] = ()) -> Count:
    """Count the failing checks with `size` runs of each side, drawn with replacement.

    With differences planted into one layer at a time, also count the checks that name the planted layer first.
    """
    chance = random.Random(f"{size} {planted}")
    found = 0
    for trial in range(trials):
        layer = layers[trial % len(layers)] if layers else ""
        runs = chance.choices(pool, k=2 * size)
        runs[size:] = [grown(run, layer, planted) for run in runs[size:]]
        decided = gate(_compared(runs, size, paired=False))
        named = [one.name for one in decided.grown if one.name != WALL]
        found += named[:1] == [layer] if layer else decided.outcome == "regression"
    return Count(found, trials)


def runs_needed(pool: Sequence[Run], layer: str) -> int | None:
    """Return the number of runs per side that detect the margin in a layer, given the spread of the pool."""
    half = len(pool) // 2
    (pair,) = _compared([*pool[::2][:half], *pool[1::2][:half]], half, paired=False).pairs
    return pair.layers[layer].runs_needed


def simulated(run: Run, scatter: float, runs: int) -> list[Run]:
    """Return copies of a run with normally distributed layer times."""
    chance = random.Random(0)
    made = []
    for _ in range(runs):
        rows = tuple(dataclasses.replace(row, ns=round(row.ns * chance.gauss(1, scatter))) for row in run.layers)
        wall_ns = sum(row.ns for row in rows) + (run.unattributed_ns or 0)
        made.append(dataclasses.replace(run, layers=rows, wall_ns=wall_ns))
    return made


def grown(run: Run, layer: str, by: float) -> Run:
    """Return a copy of the run with a layer, and the wall time, longer by the fraction `by` of the layer."""
    added_ns = sum(round(by * row.ns) for row in run.layers if row.layer == layer)
    rows = tuple(dataclasses.replace(row, ns=row.ns + added_ns) if row.layer == layer else row for row in run.layers)
    return dataclasses.replace(run, layers=rows, wall_ns=(run.wall_ns or 0) + added_ns)


def _compared(runs: Sequence[Run], size: int, paired: bool) -> Comparison:
    """Compare the second half of the runs with the first half."""
    halves = {"first": runs[:size], "second": runs[size:]}
    sides = [
        RunSet(name, tuple(Member(run, Repeat("pool" if paired else "", n), name) for n, run in enumerate(half)))
        for name, half in halves.items()
    ]
    # all runs of the pool have the same environment, even on a busy machine
    return compare([(sides[0], sides[1])], allowed=("busy", "order"))


def _alarm(compared: Iterable[Compared]) -> bool:
    return any(one.verdict in ("faster", "slower") for one in compared)


def _pairs(
    runs: Sequence[Values], order: str, size: int, chance: random.Random
) -> Iterator[tuple[list[Values], list[Values]]]:
    """Yield the two sides of each pair, drawn from consecutive runs."""
    for batch in sorted({run["batch"] for run in runs}):
        own = [run for run in runs if run["batch"] == batch]
        for begin in range(0, len(own) - 2 * size + 1, 2 * size):
            part = own[begin : begin + 2 * size]
            if order == ORDERS[2]:
                yield part[:size], part[size:]
                continue
            drawn = [chance.sample(part[place : place + 2], 2) for place in range(0, 2 * size, 2)]
            yield [first for first, _ in drawn], [second for _, second in drawn]


def _samples(first: Sequence[Values], second: Sequence[Values], name: str, paired: bool) -> Samples:
    key = f"{name}_ns"
    return Samples(tuple(run[key] for run in first), tuple(run[key] for run in second), paired)


def _paired_walls(repeats: Sequence[tuple[list[Values], list[Values]]], factor: float = 1) -> Samples:
    """Return the wall times of pairs of runs, with the second wall time multiplied by a factor."""
    first, second = ([run["wall_ns"] for pair in repeats for run in pair[place]] for place in (0, 1))
    return Samples(tuple(first), tuple(round(factor * ns) for ns in second), True)
