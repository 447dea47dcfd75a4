"""Page of a remedy that was tried: the most that its finding predicted, and the measured difference."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from bench import publish
from bench.tables import markdown
from dlobd.compare.comparison import compare
from dlobd.compare.figures import WALL
from dlobd.compare.median import spread
from dlobd.compare.runset import RunSet
from dlobd.record.run import Run
from dlobd.report.comparison import sentence


def write(
    name: str, finding: str, pair: tuple[RunSet, RunSet], busy: Sequence[float], docs: Path, allowed: Collection[str]
) -> Path:
    """Write both sides, and their comparison, between the page's markers of a benchmark.

    Args:
        pair: runs without the remedy, and with it.
        busy: percent of the cores before each run.
        allowed: kinds of environment differences that are allowed.

    Raises:
        UsageError: the runs cannot be compared.
    """
    found = compare([pair], allowed=allowed)
    runs = [side.runs for side in pair]
    rows = [
        [side.label, str(len(each)), _seconds(_walls(each)), _seconds(_bounds(each, finding))]
        for side, each in zip(pair, runs, strict=True)
    ]
    without, remedy = (side.label for side in pair)
    result = f"{remedy} against {without}, by `dlobd compare`: {sentence(WALL, found.pairs[0].wall)}."
    page = docs / publish.PAGE
    publish.page(
        page,
        name,
        [*publish.machine([run for each in runs for run in each]), *publish.loaded(busy)],
        [
            markdown(["", "n", "wall, s", f"finding `{finding}`: at most, s"], rows),
            result[0].upper() + result[1:],
        ],
    )
    return page


def _walls(runs: Sequence[Run]) -> list[int]:
    return [run.wall_ns for run in runs if run.wall_ns]


def _bounds(runs: Sequence[Run], finding: str) -> list[int]:
    """Return the predicted saving of each run; 0 without the finding."""
    return [sum(one.saves_ns for one in run.findings if one.finding == finding) for run in runs]


def _seconds(values_ns: Sequence[int]) -> str:
    """Format median, lowest and highest value."""
    found = spread([ns / 1e9 for ns in values_ns])
    if found.median is None:
        return "unknown"
    return f"{found.median:.1f} [{found.low:.1f} to {found.high:.1f}]"
