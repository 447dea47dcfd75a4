"""Tables in the terminal: lines of its width, whole numbers, and values in the units of their columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from dlobd.report import text
from dlobd.report.tables import Table
from dlobd.report.terminal.render import cell, show

WORDS = st.text("abcdef ", min_size=1, max_size=60)


def printed(table: Table, most: int | None = None) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        show(table, console, most=most)
    return [line.rstrip() for line in captured.get().splitlines()]


@given(st.lists(st.tuples(WORDS, st.integers(0, 10**13), WORDS, st.none() | st.integers(0, 10**13)), min_size=1))
def test_no_line_is_too_wide_and_no_number_is_folded(rows: list[tuple[str, int, str, int | None]]) -> None:
    lines = printed(Table("title", "name | a long head of seconds, s:s | reason | bytes read, MB:mb", rows))
    assert max(map(cell_len, lines)) <= text.MOST_COLUMNS
    for row in rows:
        assert any(f"{row[1] / 1e9:.3f}" in line.split() for line in lines)


def test_units_of_cells() -> None:
    """Stored values are integers of nanoseconds and bytes, and shares of 1."""
    assert [cell(1_500_000, unit) for unit in ("s", "ms", "mb", "number")] == ["0.002", "1.500", "1.5", "1,500,000"]
    assert (cell(0.541, "share"), cell(0.92131234, "number"), cell(None, "s")) == ("54.1", "0.921312", "unknown")
    assert (cell("80 %", "s"), cell(True, "text"), cell(["a"], "text")) == ("80 %", "true", '["a"]')


def test_the_terminal_leaves_out_columns_of_the_page_and_counts_rows() -> None:
    table = Table(
        "title", "name | detail+ | seconds:s", [("a", "x", 10**9), ("b", "y", 0)], "A note.", [("total", "", 10**9)]
    )
    assert printed(table, most=1) == [
        "",
        "title",
        "name  seconds",
        "a       1.000",
        "total   1.000",
        "1 more rows: see the HTML page.",
        "A note.",
    ]


def test_a_table_without_rows_is_not_printed() -> None:
    """Its title would stand alone."""
    assert printed(Table("title", "name", [])) == []
