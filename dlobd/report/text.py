"""Printing of terminal lines, and formatting of numbers."""

import textwrap
from collections.abc import Iterable
from functools import partial

from rich.console import Console
from rich.text import Text

from dlobd.compare import median as medians
from dlobd.compare.median import Estimate

MOST_COLUMNS = 119
"""Longest line of text; longer lines are hard to read."""

MEDIANS = "( ): 95 % confidence interval with its coverage. [ ]: minimum and maximum of fewer than six values"
"""Legend for the cells that `median` formats."""


def columns(console: Console) -> int:
    """Return the length of a line on a terminal: less than its width, because some terminals wrap a full line."""
    return min(console.width - 1, MOST_COLUMNS)


def line(console: Console, text: str, style: str = "", hanging: str = "") -> None:
    """Print a line, wrapped at the width of the terminal between words, so that paths and names can be copied.
    `hanging`: additional indent of its continuation."""
    wrap = partial(textwrap.wrap, width=columns(console), break_long_words=False, break_on_hyphens=False)
    for part in text.split("\n"):
        indent = " " * (len(part) - len(part.lstrip()))
        for row in wrap(part.lstrip(), initial_indent=indent, subsequent_indent=indent + hanging) or [""]:
            console.print(Text(row, style=style), soft_wrap=True)


def heading(console: Console, text: str) -> None:
    """Print a heading after an empty line."""
    line(console, f"\n{text}", "bold")


def seconds(ns: int) -> str:
    """Format a duration in seconds with three decimals, without the unit."""
    return f"{ns / 1e9:.3f}"


def percentage(share: float, digits: int = 0) -> str:
    """Format a fraction as a percentage: 0.54 becomes `54 %`."""
    return f"{100 * share:.{digits}f} %"


def short(ns: int) -> str:
    """Format nanoseconds in the largest fitting unit: `10 ms`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns // size} {unit}"
    return f"{ns} ns"


def estimate(found: Estimate | None) -> str:
    """Format a value with its confidence interval and coverage, if known: 1.52 (1.4 to 1.63; 96.9 %)."""
    if found is None:
        return "-"
    if found.coverage is None:
        return str(found)
    return f"{str(found).removesuffix(')')}; {percentage(found.coverage, 1)})"


def median(values: Iterable[float | None]) -> str:
    """Format the median of repeats like `estimate`; without an interval, add [minimum to maximum]."""
    known = list(values)
    found, around = medians.median(known), medians.spread(known)
    if found is None or found.coverage is not None or around.n == 1:
        return estimate(found)
    return f"{found} [{Estimate(around.low or 0.0)} to {Estimate(around.high or 0.0)}]"


def plain(value: object) -> str:
    """Format a value as text; None becomes "unknown"."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)
