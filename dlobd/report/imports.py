"""Which Python packages took long to import, in which processes, and for whom."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from dlobd.record.resources import Import
from dlobd.report import text

SHOWN = 12
"""So many rows are printed, the longest; run.json has all."""


def imports(found: Sequence[Import], console: Console) -> None:
    """Prints the longest imports; of several processes of one role the longest one's."""
    longest: dict[tuple[str, str, str], Import] = {}
    for one in found:
        key = one.role, one.package, one.by
        longest[key] = max(one, longest.get(key, one), key=lambda each: each.ns)
    if not longest:
        text.line(console, "\nImports: none took long, or none was recorded.")
        return
    text.heading(console, "Python imports, seconds: with what they import, and without")
    table = text.table(("role", "left", 14), ("package", "left", 20), ("imported by", "left", 20), ("with", "right", 9),
                       ("without", "right", 9))  # fmt: skip
    shown = sorted(longest.values(), key=lambda one: -one.ns)[:SHOWN]
    for one in shown:
        text.row(table, one.role, one.package, one.by or "the program", text.seconds(one.ns), text.seconds(one.own_ns))
    console.print(table)
    if left := len(longest) - len(shown):
        text.line(console, f"{left} more are in run.json; of several processes of a role, the longest one counts")
