"""Tables of the pages of bench/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from dlobd.compare.median import Spread, difference, ratios, spread
from dlobd.report import text

Values = dict[str, list[float | None]]
"""Values of the repeats by label; None for a missing value."""


@dataclass(frozen=True)
class Table:
    """Table with title, explanation of the columns, and cells of text."""

    title: str
    says: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Format the table as a section of a page."""
        return "\n".join([f"### {self.title}", "", self.says, "", markdown(self.columns, self.rows)])


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format cells as a Markdown table; all columns except the first are numeric."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_frame(frame: pd.DataFrame) -> str:
    """Format a data frame of text as a Markdown table."""
    return markdown([str(column) for column in frame.columns], frame.values.tolist())


def compared(title: str, says: str, unit: str, values: Values, reference: str, saved: bool = True) -> Table:
    """Build one row per label: n, median, quartiles, extremes, saving and ratio relative to `reference`.

    Args:
        values: values of the repeats by label; differences and ratios are computed within repeats.
    """
    base = values[reference]
    rows = []
    for label, own in values.items():
        less = difference(base, own)
        ends = [number(less.value if less else None)] if saved else []
        rows.append([label, *cells(spread(own)), *ends, "1" if label == reference else text.median(ratios(own, base))])
    gains = [f"saved, {unit}"] if saved else []
    columns = ["", "n", f"median, {unit}", "IQR", "min-max", *gains, f"ratio to {reference}"]
    return Table(title, says, columns, rows)


def spreads(title: str, says: str, count: str, middle: str, values: Values) -> Table:
    """Build one row per label: number of values, median, quartiles and extremes."""
    rows = [[label, *cells(spread(own))] for label, own in values.items()]
    return Table(title, says, ["", count, middle, "IQR", "min-max"], rows)


def cells(found: Spread) -> list[str]:
    """Format n, median, quartiles and extremes."""
    ends = ((found.q1, found.q3), (found.low, found.high))
    return [
        str(found.n),
        number(found.median),
        *(f"{number(low)}-{number(high)}" if found.n else "-" for low, high in ends),
    ]


def number(value: float | None) -> str:
    """Format a number with three significant digits; a dash for a missing value."""
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
