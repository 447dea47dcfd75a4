"""Tables of docs/bench.md: the form in which every module here hands over what it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dlobd.attribution.statistics import Ratio, Spread, ratio, spread


@dataclass(frozen=True)
class Table:
    """A title, what the columns mean in one sentence, and cells of text; `values` is what they were made from."""

    title: str
    says: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    values: dict[str, Any]

    def markdown(self) -> str:
        """As it stands in docs/bench.md."""
        return "\n".join([f"### {self.title}", "", self.says, "", markdown(self.columns, self.rows)])


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as a table; all columns but the first are figures."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_frame(frame: pd.DataFrame) -> str:
    """A frame of text as a table."""
    return markdown([str(column) for column in frame.columns], frame.values.tolist())


def compared(
    title: str, says: str, unit: str, values: dict[str, list[float | None]], reference: str, saved: bool = True
) -> Table:
    """One row a label: n, median, quartiles, extremes, what it saves against `reference`, and last the ratio."""
    base = values[reference]
    rows = []
    for label, own in values.items():
        found, over = spread(own), ratio(own, base)
        middle = spread(base).median
        less = middle - found.median if middle is not None and found.median is not None else None
        ends = [less] if saved else []
        rows.append([label, *cells(found), *map(number, ends), "1" if label == reference else interval(over)])
    gains = [f"saved, {unit}"] if saved else []
    columns = ["", "n", f"median, {unit}", "IQR", "min-max", *gains, f"ratio to {reference} (95 %)"]
    return Table(title, says, columns, rows, {label: list(own) for label, own in values.items()})


def cells(found: Spread) -> list[str]:
    """n, median, quartiles, extremes."""
    between = [f"{number(a)}-{number(b)}" if a is not None else "-" for a, b in _ends(found)]
    return [str(found.n), number(found.median), *between]


def interval(found: Ratio) -> str:
    """A ratio with its interval, if there is one."""
    around = f" ({found.low:.2f}-{found.high:.2f})" if found.low is not None else ""
    return "-" if found.ratio is None else f"{found.ratio:.2f}{around}"


def number(value: float | None) -> str:
    """Three digits, or a dash for what was not measured."""
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _ends(found: Spread) -> Iterable[tuple[float | None, float | None]]:
    return (found.q1, found.q3), (found.low, found.high)
