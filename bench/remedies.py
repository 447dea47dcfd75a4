"""Publishes a remedy that was tried: the saving that the finding predicts at most, and the measured saving."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from bench import publish
from bench.tables import markdown
from dlobd.attribution.statistics import spread
from dlobd.bundle.run import Run
from dlobd.report import comparison_view
from dlobd.report.comparison import WALL, comparison
from dlobd.report.sides import Side

MARGIN = 0.05


def write(
    name: str, finding: str, sides: tuple[Side, Side], busy: Sequence[float], docs: Path, allowed: Collection[str]
) -> Path:
    """Writes both sides, and their comparison by `dlobd compare`, between the page's markers of a bench.

    Args:
        sides: without the remedy, and with it.
        busy: load of the cores before each run, in percent.
        allowed: the kinds of differences between the sides that are expected.

    Raises:
        UsageError: the sides cannot be compared.
    """
    found = comparison([sides], MARGIN, allowed)
    runs = [[member.run for member in side.members] for side in sides]
    rows = [
        [side.label, str(len(each)), _seconds(_walls(each)), _seconds(_bounds(each, finding))]
        for side, each in zip(sides, runs, strict=True)
    ]
    without, remedy = (side.label for side in sides)
    sentence = f"{remedy} against {without}, by `dlobd compare`: {comparison_view.sentence(WALL, found.pairs[0].wall)}."
    page = docs / publish.PAGE
    publish.page(
        page,
        name,
        [*publish.machine([run for each in runs for run in each]), *publish.loaded(busy)],
        [
            markdown(["", "n", "wall, s", f"finding `{finding}`: at most, s"], rows),
            sentence[0].upper() + sentence[1:],
        ],
    )
    return page


def _walls(runs: Sequence[Run]) -> list[int]:
    return [run.wall_ns for run in runs if run.wall_ns]


def _bounds(runs: Sequence[Run], finding: str) -> list[int]:
    """Returns the predicted saving of each run; 0 without the finding."""
    return [sum(each.saves_ns for each in run.findings or () if each.finding == finding) for run in runs]


def _seconds(values_ns: Sequence[int]) -> str:
    found = spread([ns / 1e9 for ns in values_ns])
    if found.median is None:
        return "unknown"
    return f"{found.median:.1f} [{found.low:.1f} to {found.high:.1f}]"
