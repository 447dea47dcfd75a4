"""How much of the variation of wall, layers and throughput each setting of a sweep explains: Sobol' indices, by SALib.

    first order   share of the variance that a factor explains by itself, averaged over the others
    total order   the same with all its interactions with other factors
    run to run    a factor too: which repeat it was. Its total order is the share that no setting explains
    by chance     first order that a factor without effect has on average, from the spread of repeats (F = 1)

Shares of 1: so they are normalised, and those of factors in different units compare. Nothing is assumed of a factor,
not even an order of its values: names of models and launchers are factors like numbers.

Why this method. Other methods of SALib that take any runs need numbers that vary continuously: delta and PAWN cut a
factor into slices of equally many runs, which splits values that are equal; RBD-FAST reads a period in their order; and
`ff` knows two values a factor. Sobol' indices want runs in Saltelli's scheme, thousands of them. But a sweep of all
combinations is the whole function over its values: each run of the scheme is looked up in it instead of being made. The
error that is left is that of few repeats. No interval is known that holds as often as it says with so few, so that none
is given: `by chance` is what a first order has to exceed by far.

    Sobol' 2001, doi:10.1016/S0378-4754(00)00270-6; Saltelli et al. 2010, doi:10.1016/j.cpc.2009.09.018
    SALib: Herman and Usher 2017, doi:10.21105/joss.00097; Iwanaga et al. 2022, doi:10.18174/sesmo.18155
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from SALib.analyze import sobol as analysis
from SALib.sample import sobol as sampling

from dlobd.errors import UsageError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report.chosen import Chosen, differing, grouped
from dlobd.report.summary import layer_s, throughput, title, wall_s

REPEATS = 3
"""Fewer runs of a point do not tell what chance alone gives."""

SAMPLES = 2048
"""Of Saltelli's scheme, a power of 2: the indices are then within about 0.01 of what the table of the sweep has."""

RUN_TO_RUN = "run to run"

LIMITS = (
    "Shares of the variance over this sweep's values and no others, each value taken as equally likely.\n"
    "There are no intervals: how often one of {repeats} runs of each point would hold is not known.\n"
    "A first order that is not clearly above `by chance` shows no effect. What differs from run to run\n"
    "is in the total order of every factor: where `run to run` is large, go by the first order."
)

Levels = Mapping[str, Sequence[Any]]
"""Factor to its values."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one factor does to one figure; shares of the variance, of 1."""

    figure: str
    factor: str
    first: float
    total: float
    chance: float


def factors(chosen: Chosen) -> dict[str, list[Any]]:
    """The settings that were varied, with their values: axes of the sweep, or every field in which the runs differ.

    Raises:
        UsageError: there is none.
    """
    varied = differing(chosen.runs)
    found = {name: _values(chosen.runs, name) for name in chosen.axes or varied}
    if constant := [name for name, values in found.items() if len(values) < 2]:
        raise UsageError(
            f"{constant[0]} has one value alone ({found[constant[0]][0]}) in the runs that are ok: nothing to compare.",
            "run the sweep to its end, or name a sweep of at least two values",
        )
    if not found:
        raise UsageError("The runs do not differ in any setting.", "name the runs of a sweep")
    return found


def cube(chosen: Chosen, levels: Levels) -> list[list[Run]]:
    """The runs of each combination of the factors' values, in their order, equally many of each.

    Raises:
        UsageError: a combination has fewer than `REPEATS` runs that are ok.
    """
    cells = grouped(chosen.runs, lambda run: tuple(getattr(run.configuration, name) for name in levels))
    for combination in product(*levels.values()):
        if len(runs := cells.get(combination, [])) < REPEATS:
            point = " ".join(f"{name}={value}" for name, value in zip(levels, combination, strict=True))
            raise UsageError(
                f"Sensitivity needs {REPEATS} runs of every combination that are ok; {point} has {len(runs)}.",
                f"dlobd sweep ... --repeats {REPEATS}, of axes without exclude",
            )
    fewest = min(map(len, cells.values()))
    return [cells[combination][:fewest] for combination in product(*levels.values())]


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Figure to a function of a run, for those that every run has and that are not 0 in all of them."""
    every: dict[str, Any] = {"wall": wall_s}
    every |= {title(name): partial(_layer, name=name) for name in (*LAYERS, UNATTRIBUTED)}
    every |= {"samples/s": throughput}
    found = {}
    for name, value in every.items():
        values = [value(run) for run in runs]
        if None not in values and len(set(values)) > 1:
            found[name] = value
    return found


def sensitivities(chosen: Chosen, seed: int = 0) -> list[Sensitivity]:
    """Of every figure to every factor, and to `RUN_TO_RUN`. Equal input, equal output. See `cube`, `factors`."""
    levels = factors(chosen)
    cells = cube(chosen, levels)
    scheme = _Scheme([*levels, RUN_TO_RUN], [*(len(values) for values in levels.values()), len(cells[0])], seed)
    found = []
    for name, value in figures([run for runs in cells for run in runs]).items():
        seen = np.array([[value(run) for run in runs] for runs in cells])
        orders = scheme.indices(seen).T
        for factor, chance, (first, total) in zip(scheme.names, _by_chance(seen, scheme.sizes), orders, strict=True):
            found.append(Sensitivity(name, factor, float(first), float(total), chance))
    return found


class _Scheme:
    """Saltelli's scheme over factors whose values are counted from 0, so that a sweep's table can be looked up."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int], seed: int) -> None:
        self.names = list(names)
        self.sizes = list(sizes)
        self._problem = {"num_vars": len(names), "names": self.names, "bounds": [[0, size] for size in sizes]}
        sampled = sampling.sample(self._problem, SAMPLES, calc_second_order=False, seed=seed)
        self._at = tuple(np.minimum(np.floor(sampled).astype(int), np.array(sizes) - 1).T)

    def indices(self, seen: Any) -> Any:
        """First and total order of each factor, shape (2, factors).

        Args:
            seen: one row a combination of the factors' values, one column a repeat.
        """
        values = seen.reshape(self.sizes)[self._at]
        if not np.ptp(values):
            return np.zeros((2, len(self.sizes)))
        found = analysis.analyze(self._problem, values, calc_second_order=False, num_resamples=2, seed=1)
        return np.array([found["S1"], found["ST"]])


def _by_chance(seen: Any, sizes: Sequence[int]) -> list[float]:
    """(values - 1) x variance within points, as a share of the whole: what a sum of squares is where F = 1."""
    points, repeats = seen.shape
    within = float(((seen - seen.mean(axis=1, keepdims=True)) ** 2).sum()) / (points * (repeats - 1))
    whole = float(((seen - seen.mean()) ** 2).sum())
    return [(size - 1) * within / whole for size in sizes]


def _layer(run: Run, name: str) -> float | None:
    """Seconds of a layer; 0 where it took no part in this way of running."""
    took_part = {row.layer: bool(row.inside) for row in run.not_measured}.get(name, True)
    return layer_s(run, name) if took_part else 0.0


def _values(runs: Iterable[Run], name: str) -> list[Any]:
    return sorted({getattr(run.configuration, name) for run in runs})


def table(found: Sequence[Sensitivity]) -> pd.DataFrame:
    """One row a figure and factor."""
    return pd.DataFrame(
        [
            {
                "figure": one.figure,
                "factor": one.factor,
                "first order": _share(one.first),
                "total order": _share(one.total),
                "by chance": f"{one.chance:.2f}",
            }
            for one in found
        ]
    )


def report(chosen: Chosen) -> tuple[Iterable[str], Figure]:
    """Table and picture. See `dlobd.report.script`."""
    levels = factors(chosen)
    found = sensitivities(chosen)
    repeats = len(cube(chosen, levels)[0])
    given = [f"{name}: {', '.join(map(str, values))}" for name, values in levels.items()]
    pieces = (
        f"Sensitivity over {'; '.join(given)}",
        LIMITS.format(repeats=repeats),
        "",
        table(found).to_string(index=False),
    )
    return pieces, picture(found)


def picture(found: Sequence[Sensitivity]) -> Figure:
    """Total order of each figure to each factor, as a shade and a number, with the first order below it."""
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
    return f"{round(value, 2) + 0.0:.2f}"  # without the sign of -0.00
