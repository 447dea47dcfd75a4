"""Rendering of the tables of `dlobd.report.tables` for a terminal."""

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from dlobd.report import text
from dlobd.report.tables import Column, Table, cell

NARROWEST = {1: 24, 2: 16, 3: 14, 4: 8}
"""Minimum width of a text column by number of header lines. Fewer header lines are tried first."""


def show(table: Table, console: Console, most: int | None = None) -> None:
    """Print a non-empty table with title and note, and at most `most` rows."""
    if not table.rows:
        return
    text.heading(console, table.title)
    places = [place for place, column in enumerate(table.columns) if not column.page_only]
    columns = [table.columns[place] for place in places]
    rows = [[cell(row[place], table.columns[place].unit, "-") for place in places] for row in table.rows[:most]]
    totals = [[cell(row[place], table.columns[place].unit, "-") for place in places] for row in table.totals]
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    widths = _widths(columns, rows + totals, text.columns(console))
    for column, width in zip(columns, widths, strict=True):
        # brackets in names from a run are not markup
        right = column.unit != "text"
        grid.add_column(Text(column.name), justify="right" if right else "left", width=width, overflow="fold")
    for row in rows + totals:
        grid.add_row(*map(Text, row))
    console.print(grid)
    if left := len(table.rows) - len(rows):
        text.line(console, f"{left} more rows: see the HTML page.")
    if table.note:
        text.line(console, table.note)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Compute column widths that wrap no number. Headings wrap at spaces into as few lines as fit."""
    room -= len(columns) - 1
    widest = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths: list[int] = []
    for lines, narrowest in NARROWEST.items():
        widths = [max(width, _narrowest(column.name, lines)) for width, column in zip(widest, columns, strict=True)]
        texts = [place for place, column in enumerate(columns) if column.unit == "text"]
        while sum(widths) > room and (wide := [place for place in texts if widths[place] > narrowest]):
            widths[max(wide, key=widths.__getitem__)] -= 1
        if sum(widths) <= room:
            break
    return widths


def _narrowest(head: str, lines: int) -> int:
    width = max(map(len, head.split()), default=0)
    while len(textwrap.wrap(head, max(width, 1))) > lines:
        width += 1
    return width
