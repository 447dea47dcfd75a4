"""How often comparisons see what is not there, and find what is: A/A pairs, and planted differences.

All of it is by the functions of `dlobd compare` and `dlobd check`, on recorded runs. Of short processes there are
enough to cut them into independent pairs; of whole runs there is a pool, from which is drawn again and again.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scipy.stats import beta

from bench.short_runs import LAYERS as SHORT_LAYERS
from dlobd.attribution.comparison import MARGIN, Compared, compare
from dlobd.attribution.permutation import Sides
from dlobd.record.run import Run
from dlobd.report.comparison import WALL, Comparison, comparison
from dlobd.report.gate import Gate, gate
from dlobd.report.sides import Member, Side

Values = dict[str, int]
"""A short run: nanoseconds of `wall` and of each layer, and its batch."""


@dataclass(frozen=True, slots=True)
class Count:
    """So many of `of`."""

    found: int
    of: int

    @property
    def share(self) -> float:
        """Found of all."""
        return self.found / self.of

    @property
    def at_most(self) -> float:
        """The one-sided 95 % limit of the true share, exact (Clopper and Pearson 1934)."""
        return float(beta.ppf(0.95, self.found + 1, self.of - self.found)) if self.found < self.of else 1.0

    @property
    def at_least(self) -> float:
        """As `at_most`, from below."""
        return float(beta.ppf(0.05, self.found, self.of - self.found + 1)) if self.found else 0.0


@dataclass(frozen=True, slots=True)
class Alarms:
    """Of A/A pairs with `size` runs a side: those with a verdict other than equivalent and inconclusive, for the wall,
    and for any of the layers."""

    order: str
    size: int
    wall: Count
    layers: Count


ORDERS = ("blocks", "two samples, interleaved", "two samples, one after the other")
"""How a pair's runs follow each other: within each repeat in random order; the same, taken as two samples; first all
of one side."""


def short_alarms(runs: Sequence[Values], order: str, size: int) -> Alarms:
    """Of independent pairs: no run is in two of them, and none goes over the end of a batch."""
    chance = random.Random(f"{order} {size}")
    wall = layers = pairs = 0
    for first, second in _pairs(runs, order, size, chance):
        blocks = order == ORDERS[0]
        wall += _alarm(compare({WALL: _sides(first, second, WALL, blocks)}).values())
        layers += _alarm(compare({name: _sides(first, second, name, blocks) for name in SHORT_LAYERS}).values())
        pairs += 1
    return Alarms(order, size, Count(wall, pairs), Count(layers, pairs))


def short_power(runs: Sequence[Values], pilot: int, planted: float, trials: int) -> tuple[Count, list[int]]:
    """Of trials in which the tool asks for a number of repeats after a pilot without a planted difference: in how many
    so many fresh ones find it; and how many those were.

    A trial draws its blocks, which are two runs one after the other, without replacement from all recorded ones.
    """
    chance = random.Random(planted)
    blocks = list(_pairs(runs, ORDERS[0], 1, chance))
    found, asked = 0, []
    for _ in range(trials):
        drawn = chance.sample(blocks, len(blocks))
        before = compare({WALL: _of_blocks(drawn[:pilot])}, planted)[WALL]
        needed = before.runs_needed
        if needed is None:
            continue
        after = compare({WALL: _of_blocks(drawn[pilot : pilot + needed], 1 + planted)}, planted)[WALL]
        found += after.verdict == "slower"
        asked.append(needed)
    return Count(found, len(asked)), asked


def stack_alarms(pool: Sequence[Run], blocks: bool, size: int, trials: int) -> Alarms:
    """Of sides that are drawn from a pool of runs of one experiment, in the order of their start; resampled, so not
    independent of each other. A block is two runs one after the other."""
    chance = random.Random(f"{blocks} {size}")
    by_two = list(zip(pool[::2], pool[1::2], strict=False))
    wall = layers = 0
    for _ in range(trials):
        if blocks:
            drawn = [chance.sample(block, 2) for block in chance.sample(by_two, size)]
            runs = [first for first, _ in drawn] + [second for _, second in drawn]
        else:
            runs = chance.sample(pool, 2 * size)
        (pair,) = _compared(runs, size, blocks).pairs
        wall += _alarm([pair.wall])
        layers += _alarm(pair.layers.values())
    return Alarms("blocks" if blocks else "two samples", size, Count(wall, trials), Count(layers, trials))


def gates(pool: Sequence[Run], size: int, trials: int, planted: float = 0, layers: Sequence[str] = ()) -> Count:
    """Of checks with `size` runs a side, drawn with replacement: those that fail; where something is planted into one
    of these layers in turn, those that name it, and first."""
    chance = random.Random(f"{size} {planted}")
    found = 0
    for trial in range(trials):
        layer = layers[trial % len(layers)] if layers else ""
        decided = _gate(chance, pool, size, layer, planted)
        named = [name for _, name in decided.grown if name != WALL]
        found += named[:1] == [layer] if layer else decided.outcome == "regression"
    return Count(found, trials)


def runs_needed(pool: Sequence[Run], layer: str) -> int | None:
    """So many a side, of runs that scatter like the pool, show the margin of a layer where all layers are looked at."""
    half = len(pool) // 2
    (pair,) = _compared([*pool[::2][:half], *pool[1::2][:half]], half, blocks=False).pairs
    return pair.layers[layer].runs_needed


def simulated(run: Run, scatter: float, runs: int) -> list[Run]:
    """Runs like this one, whose layers scatter by such a share of themselves, normally."""
    chance = random.Random(0)
    made = []
    for _ in range(runs):
        rows = tuple(dataclasses.replace(row, ns=round(row.ns * chance.gauss(1, scatter))) for row in run.layers)
        wall_ns = sum(row.ns for row in rows) + (run.unattributed_ns or 0)
        made.append(dataclasses.replace(run, layers=rows, wall_ns=wall_ns))
    return made


def grown(run: Run, layer: str, by: float) -> Run:
    """The run with so much more of a layer, and of its wall."""
    added_ns = sum(round(by * row.ns) for row in run.layers if row.layer == layer)
    rows = tuple(dataclasses.replace(row, ns=row.ns + added_ns) if row.layer == layer else row for row in run.layers)
    return dataclasses.replace(run, layers=rows, wall_ns=(run.wall_ns or 0) + added_ns)


def _gate(chance: random.Random, pool: Sequence[Run], size: int, layer: str, planted: float) -> Gate:
    runs = chance.choices(pool, k=2 * size)
    runs[size:] = [grown(run, layer, planted) for run in runs[size:]]
    return gate(_compared(runs, size, blocks=False))


def _compared(runs: Sequence[Run], size: int, blocks: bool) -> Comparison:
    """The second half of the runs with the first."""
    halves = {"first": runs[:size], "second": runs[size:]}
    sides = [
        Side(name, tuple(Member(run, ("pool", place) if blocks else None) for place, run in enumerate(half)))
        for name, half in halves.items()
    ]
    # the pool was made in one environment; that of a busy machine is one, too
    return comparison([(sides[0], sides[1])], MARGIN, ("busy", "order"))


def _alarm(compared: Iterable[Compared]) -> bool:
    return any(one.verdict in ("faster", "slower") for one in compared)


def _pairs(
    runs: Sequence[Values], order: str, size: int, chance: random.Random
) -> Iterator[tuple[list[Values], list[Values]]]:
    """Both sides of each pair, of runs that follow each other."""
    for batch in sorted({run["batch"] for run in runs}):
        own = [run for run in runs if run["batch"] == batch]
        for begin in range(0, len(own) - 2 * size + 1, 2 * size):
            part = own[begin : begin + 2 * size]
            if order == ORDERS[2]:
                yield part[:size], part[size:]
                continue
            drawn = [chance.sample(part[place : place + 2], 2) for place in range(0, 2 * size, 2)]
            yield [first for first, _ in drawn], [second for _, second in drawn]


def _sides(first: Sequence[Values], second: Sequence[Values], name: str, blocks: bool) -> Sides:
    key = f"{name}_ns"
    return Sides(tuple(run[key] for run in first), tuple(run[key] for run in second), blocks)


def _of_blocks(blocks: Sequence[tuple[list[Values], list[Values]]], factor: float = 1) -> Sides:
    """Walls of blocks of two runs; the second one's is so many times as long."""
    first, second = ([run["wall_ns"] for side in blocks for run in side[place]] for place in (0, 1))
    return Sides(tuple(first), tuple(round(factor * ns) for ns in second), True)
