"""Sensitivity of wall, layers and throughput to the settings of a sweep: Sobol' indices, by SALib.

    first order   share of the variance that a factor explains alone, averaged over the other factors
    total order   first order plus all interactions with other factors
    run to run    the repeat as a factor; its total order is the fraction that no setting explains
    by chance     average first order of a factor without effect, from the spread of repeats (F = 1)

Indices are fractions of 1, so factors in different units are comparable. The values of a factor need no order: they may
be names, such as models and launchers.

Reason for this method: other methods of SALib for arbitrary runs need continuous numbers. Delta and PAWN cut a factor
into slices of equally many runs, which splits equal values; RBD-FAST expects a period in the order of the runs; `ff`
allows two values per factor. Sobol' indices need thousands of runs in Saltelli's scheme, but a sweep of all
combinations is the complete function over its values: the scheme takes its runs from the sweep. The remaining error
comes from the small number of repeats. With so few repeats no interval has a known coverage, so no interval is given:
compare a first order with `by chance`.

    Sobol' 2001, doi:10.1016/S0378-4754(00)00270-6; Saltelli et al. 2010, doi:10.1016/j.cpc.2009.09.018
    SALib: Herman and Usher 2017, doi:10.21105/joss.00097; Iwanaga et al. 2022, doi:10.18174/sesmo.18155
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from SALib.analyze import sobol as analysis
from SALib.sample import sobol as sampling

from analysis.studies import script
from analysis.studies.estimates import Floats
from analysis.studies.runs import varying
from analysis.studies.script import Shown
from dlobd.compare.figures import PARTS, Value, layer_or_zero_s, throughput, wall_s
from dlobd.compare.runset import RunSet
from dlobd.errors import UsageError
from dlobd.layers import title
from dlobd.record.run import Run

REPEATS = 3
"""Minimum number of runs per point; with fewer, the column `by chance` cannot be estimated."""

SAMPLES = 2048
"""Samples of Saltelli's scheme, a power of 2; the error of the indices is about 0.01."""

RUN_TO_RUN = "run to run"

LIMITS = (
    "Shares of the variance over the values of this sweep, all equally likely.\n"
    "There are no intervals: their coverage with {repeats} runs of each point is unknown.\n"
    "A first order close to `by chance` shows no effect. The variation between runs is part of the\n"
    "total order of every factor: if `run to run` is large, use the first order."
)

Levels = Mapping[str, Sequence[object]]
"""Values of each factor."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Indices of a figure for a factor, as fractions of the variance."""

    figure: str
    factor: str
    first: float
    total: float
    chance: float


def factors(runs: RunSet) -> Levels:
    """Collect the varied settings with their values: axes of the sweep, or all differing fields.

    Raises:
        UsageError: no setting varies.
    """
    found = {
        name: sorted({getattr(run.configuration, name) for run in runs.runs})
        for name in runs.axes or varying(runs.runs)
    }
    if constant := [name for name, values in found.items() if len(values) < 2]:
        raise UsageError(
            f"{constant[0]} has a single value ({found[constant[0]][0]}) in the runs that are ok.",
            "run the sweep to its end, or name a sweep of at least two values",
        )
    if not found:
        raise UsageError("The runs do not differ in any setting.", "name the runs of a sweep")
    return found


def cube(runs: RunSet, levels: Levels) -> list[list[Run]]:
    """Group the runs by combination of values, with equal numbers of runs.

    Raises:
        UsageError: a combination has fewer than `REPEATS` runs that are ok.
    """
    cells = runs.grouped(lambda run: tuple(getattr(run.configuration, name) for name in levels))
    for combination in product(*levels.values()):
        count = len(cells[combination].members) if combination in cells else 0
        if count < REPEATS:
            point = " ".join(f"{name}={value}" for name, value in zip(levels, combination, strict=True))
            raise UsageError(
                f"Sensitivity needs {REPEATS} runs of every combination with status ok; {point} has {count}.",
                f"use dlobd sweep ... --repeats {REPEATS}, with axes without exclude",
            )
    fewest = min(len(cell.members) for cell in cells.values())
    return [list(cells[combination].runs[:fewest]) for combination in product(*levels.values())]


def figures(runs: Sequence[Run]) -> dict[str, Value]:
    """Return the varying figures that all runs have, as functions of a run."""
    every: dict[str, Value] = {"wall": wall_s}
    every |= {title(name): partial(layer_or_zero_s, layer=name) for name in PARTS}
    every |= {"samples/s": throughput}
    found = {}
    for name, value in every.items():
        values = [value(run) for run in runs]
        if None not in values and len(set(values)) > 1:
            found[name] = value
    return found


def sensitivities(runs: RunSet, seed: int = 0) -> list[Sensitivity]:
    """Compute the sensitivity of every figure to every factor and to `RUN_TO_RUN`. Equal input gives equal output."""
    levels = factors(runs)
    cells = cube(runs, levels)
    scheme = _Scheme([*levels, RUN_TO_RUN], [*(len(values) for values in levels.values()), len(cells[0])], seed)
    found = []
    for name, value in figures([run for runs in cells for run in runs]).items():
        seen = np.array([[value(run) for run in runs] for runs in cells])
        orders = scheme.indices(seen).T
        for factor, chance, (first, total) in zip(scheme.names, _by_chance(seen, scheme.sizes), orders, strict=True):
            found.append(Sensitivity(name, factor, float(first), float(total), chance))
    return found


class _Scheme:
    """Saltelli's scheme over the indices of factor values, which address the results of a sweep."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int], seed: int) -> None:
        self.names = list(names)
        self.sizes = list(sizes)
        self._problem = {"num_vars": len(names), "names": self.names, "bounds": [[0, size] for size in sizes]}
        sampled = sampling.sample(self._problem, SAMPLES, calc_second_order=False, seed=seed)
        self._at = tuple(np.minimum(np.floor(sampled).astype(int), np.array(sizes) - 1).T)

    def indices(self, seen: Floats) -> Floats:
        """Compute first and total order of each factor, as an array of shape (2, factors).

        Args:
            seen: one row per combination of values, and one column per repeat.
        """
        values = seen.reshape(self.sizes)[self._at]
        if not np.ptp(values):
            return np.zeros((2, len(self.sizes)))
        found = analysis.analyze(self._problem, values, calc_second_order=False, num_resamples=2, seed=1)
        return np.array([found["S1"], found["ST"]])


def _by_chance(seen: Floats, sizes: Sequence[int]) -> list[float]:
    """Return (values - 1) x variance within points, as a fraction of the total: the sum of squares for F = 1."""
    points, repeats = seen.shape
    within = float(((seen - seen.mean(axis=1, keepdims=True)) ** 2).sum()) / (points * (repeats - 1))
    whole = float(((seen - seen.mean()) ** 2).sum())
    return [(size - 1) * within / whole for size in sizes]


def table(found: Sequence[Sensitivity]) -> pd.DataFrame:
    """Build one row per figure and factor."""
    rows = [(one.figure, one.factor, _share(one.first), _share(one.total), f"{one.chance:.2f}") for one in found]
    return pd.DataFrame(rows, columns=["figure", "factor", "first order", "total order", "by chance"])


def report(asked: Namespace) -> Shown:
    """Return table and picture."""
    runs = script.usable(asked.runs)
    levels = factors(runs)
    found = sensitivities(runs)
    repeats = len(cube(runs, levels)[0])
    given = [f"{name}: {', '.join(map(str, values))}" for name, values in levels.items()]
    pieces = (
        f"Sensitivity over {'; '.join(given)}",
        LIMITS.format(repeats=repeats),
        "",
        table(found).to_string(index=False),
    )
    return pieces, picture(found)


def picture(found: Sequence[Sensitivity]) -> Figure:
    """Draw the total order of each figure and factor as a shade, with the first order in brackets."""
    names = list(dict.fromkeys(one.figure for one in found))
    across = list(dict.fromkeys(one.factor for one in found))
    shares = np.array([[one.total for one in found if one.figure == name] for name in names])
    figure = Figure(figsize=(3 + 1.4 * len(across), 1.8 + 0.55 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="cividis_r", vmin=0, vmax=1, aspect="auto")
    for number, one in enumerate(found):
        row, column = divmod(number, len(across))
        text = f"{_share(one.total)}\n({_share(one.first)})"
        colour = "white" if one.total > 0.5 else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize="small", color=colour)
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(names)), names)
    axes.set_title("Sensitivity: total order (first order), shares of the variance", loc="left", fontsize="medium")
    return figure


def _share(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # removes the sign of -0.00
