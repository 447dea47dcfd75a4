"""Overview of a run: the first screen in the terminal. Text to be copied is not wrapped."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from dlobd.record.run import Run
from dlobd.report import sentences, text
from dlobd.report.first_screen import Broken, FirstScreen, Part, Tile, first_screen

MARKS, ASCII_MARKS = "█▓▒░", "#=+-"
"""Marks of the parts of a bar, in turn: neighbours differ without colour, too."""

MOST_FINDINGS = 3


def overview(run: Run, console: Console, bundle: str = "") -> None:
    """Print the overview. `bundle`: path of the bundle for a command line, if it has one."""
    for line in lines(run, bundle, console.options.ascii_only):
        console.print(line, soft_wrap=True)


def lines(run: Run, bundle: str = "", ascii_only: bool = False) -> Iterator[Text]:
    """Yield all lines of the overview."""
    screen = first_screen(run, bundle)
    yield from _wrapped(screen.headline, style="bold")
    named = [f"run {run.run_id}", run.experiment, f"status {run.status}"]
    yield from _in_rows([Text(words, "dim") for words in (*named, *map(" ".join, screen.subtitle))])
    yield from _failure(screen.failure) if screen.failure else ()
    yield from bar("Wall time by layer", screen.layers, ascii_only)
    yield from bar("Phases", screen.phases, ascii_only)
    yield from _tiles(screen.tiles)
    yield from _findings(screen)
    warned = list(filter(None, (screen.lost_work, *(f"warning: {words}" for words in screen.warnings))))
    yield from [Text("")] if warned else []
    for words in warned:
        yield from _wrapped(words, "  ", "yellow")


def bar(heading: str, parts: Sequence[Part], ascii_only: bool, scale: float = 1.0) -> Iterator[Text]:
    """Draw one stacked bar, with the names and seconds of its parts below it. `scale`: its fraction of the width."""
    if not parts:
        return
    if heading:
        yield Text(f"\n{heading}", style="bold")
    drawn, end = Text(), 0.0
    legend = []
    for part, mark in zip(parts, itertools.cycle(ASCII_MARKS if ascii_only else MARKS)):
        start, end = round(text.WIDTH * end), end + part.share * scale
        drawn.append(mark * (round(text.WIDTH * end) - start), part.colour)
        words = f" {part.title} {part.seconds} s ({text.percentage(part.share)})"
        legend.append(Text.assemble((mark, part.colour), words))
    yield drawn
    yield from _in_rows(legend)


def _wrapped(words: str, indent: str = "", style: str = "") -> list[Text]:
    """Wrap a text at spaces only: names of settings are copied."""
    rows = textwrap.wrap(words, text.WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [Text(row, style=style) for row in rows]


def _in_rows(pieces: Sequence[Text]) -> Iterator[Text]:
    """Join pieces to lines, two spaces apart; no piece is broken."""
    row = Text()
    for piece in pieces:
        if row and row.cell_len + 2 + piece.cell_len > text.WIDTH:
            yield row
            row = Text()
        row = Text("  ").join((row, piece)) if row else piece
    yield row


def _failure(failure: Broken) -> Iterator[Text]:
    yield Text("")
    yield from _wrapped(failure.reason, style="bold red")
    for name, value in (("Phase", failure.phase), ("Script", failure.where), ("Java cause", failure.java_cause)):
        if value:
            yield Text(f"{name}: {value}")
    yield from (Text(line, style="dim") for line in failure.traceback)
    if failure.next_step:
        yield Text(f"Next: {failure.next_step}", style="bold")


def _tiles(tiles: Sequence[Tile]) -> Iterator[Text]:
    """Print the key figures, one per line."""
    yield from [Text("")] if tiles else []
    width = max((len(tile.word) for tile in tiles), default=0)
    for tile in tiles:
        yield Text.assemble(
            f"{tile.word:<{width}}  ", (tile.value, "bold"), (f"  {tile.detail}" if tile.detail else "", "dim")
        )


def _findings(screen: FirstScreen) -> Iterator[Text]:
    """Print the largest findings above noise with their remedies, or the line that replaces them."""
    if screen.no_finding:
        yield from (Text(""), *_wrapped(screen.no_finding, style="dim"))
    if not screen.findings:
        return
    yield Text(f"\n{sentences.FINDINGS_TITLE}", style="bold")
    for number, row in enumerate(screen.findings[:MOST_FINDINGS], 1):
        yield from _wrapped(f"{number}. {sentences.finding(row)}", "   ")
        yield from _wrapped(f"   Remedy: {row.remedy}", "   ")
    if len(screen.findings) > MOST_FINDINGS:
        yield Text(f"{len(screen.findings) - MOST_FINDINGS} more in the view `findings`")
