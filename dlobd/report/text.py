"""How terminal reports are written: lines of at most 79 columns, tables, and numbers with their units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlobd.compare import median as medians
from dlobd.compare.median import Estimate

WIDTH = 79

MEDIANS = "in ( ) 95 % intervals, each by itself, with their coverage; in [ ] lowest and highest of fewer than six"
"""What the cells of `median` have beside the value."""


def line(console: Console, text: str, style: str = "") -> None:
    """One line, wrapped where it is too long."""
    console.print(Text(text, style=style), width=WIDTH)


def heading(console: Console, text: str) -> None:
    """An empty line, and a heading."""
    line(console, f"\n{text}", "bold")


def rows(console: Console, title: str, named: list[tuple[str, str]]) -> None:
    """A heading and below it names, each with its text; nothing where there are none."""
    if not named:
        return
    heading(console, title)
    found = table(("", "left", 20), ("", "left", WIDTH - 22))
    found.show_header = False
    for name, text in named:
        row(found, name, text)
    console.print(found)


def table(*columns: tuple[str, Any, int]) -> Table:
    """An empty table; a column is its header, its justification and its width."""
    found = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for header, justify, width in columns:
        found.add_column(header, justify=justify, width=width, overflow="fold")
    return found


def row(to: Table, *cells: str | Text) -> None:
    """Adds a row."""
    # names from a run may hold brackets, which are not markup
    to.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def seconds(ns: int) -> str:
    """A length in seconds, to the millisecond, without the unit."""
    return f"{ns / 1e9:.3f}"


def percent(share: float) -> str:
    """A share of 1 in percent, without the unit."""
    return f"{100 * share:.1f}"


def percentage(share: float, digits: int = 0) -> str:
    """Return a share of 1 with its unit: 54 %."""
    return f"{100 * share:.{digits}f} %"


def short(ns: int) -> str:
    """A length in its largest unit, for example 10 ms."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns // size} {unit}"
    return f"{ns} ns"


def estimate(found: Estimate | None) -> str:
    """A value with its interval and how often such a one holds, if it has one: 1.52 (1.4 to 1.63; 96.9%)."""
    if found is None:
        return "-"
    return str(found) if found.coverage is None else f"{str(found).removesuffix(')')}; {found.coverage:.1%})"


def median(values: Iterable[float | None]) -> str:
    """Of values of one repeat each: as `estimate`; too few for an interval have the lowest and the highest, which are
    none, in square brackets."""
    known = list(values)
    found, around = medians.median(known), medians.spread(known)
    if found is None or found.coverage is not None or around.n == 1:
        return estimate(found)
    return f"{found} [{Estimate(around.low or 0.0)} to {Estimate(around.high or 0.0)}]"


def plain(value: object) -> str:
    """A value as it is; unknown where there is none."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)
