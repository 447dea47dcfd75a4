"""Overview of a run: the first screen in the terminal, in lines of at most 79 columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from dlobd.record.run import Run
from dlobd.report import sentences, text
from dlobd.report.first_screen import Broken, FirstScreen, Part, Tile, first_screen

FULL, ASCII = "█▓▒░", "#=+-"
"""Marks of the parts of a bar, in turn: neighbours differ without colour, too."""

MOST_FINDINGS = 3


def overview(run: Run, console: Console) -> None:
    """Print the overview."""
    for line in lines(run, console.options.ascii_only):
        console.print(line, width=text.WIDTH)


def lines(run: Run, ascii_only: bool = False) -> list[Text]:
    """Build all lines of the overview."""
    screen = first_screen(run)
    head = [Text(f"run {run.run_id}  {run.experiment}  status {run.status}")]
    return [
        *head,
        *_wrapped(screen.headline, style="bold"),
        *_wrapped(", ".join(f"{label} {value}" for label, value in screen.subtitle), style="dim"),
        *(_failure(screen.failure) if screen.failure else ()),
        *_bar("Wall time by layer", screen.layers, ascii_only),
        *_bar("Phases", screen.phases, ascii_only),
        *_wrapped(screen.lost_work, style="yellow"),
        *_tiles(screen.tiles),
        *_findings(screen),
        *(line for words in screen.warnings for line in _wrapped(f"warning: {words}", "  ", "yellow")),
    ]


def _wrapped(words: str, indent: str = "", style: str = "") -> list[Text]:
    lines = textwrap.wrap(words, text.WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [Text(line, style=style) for line in lines]


def _failure(failure: Broken) -> Iterator[Text]:
    yield from _wrapped(failure.reason, style="bold red")
    for name, value in (
        ("Phase", failure.phase),
        ("Script", failure.where),
        ("Java cause", failure.java_cause),
        ("Log", f"{failure.log} in the bundle" if failure.log else ""),
    ):
        yield from _wrapped(f"{name}: {value}", "  ") if value else ()
    for line in failure.traceback:
        yield Text(f"  {line}", style="dim")
    yield from _wrapped(f"Next: {failure.next_step}", "  ", "bold") if failure.next_step else ()


def _bar(heading: str, parts: Sequence[Part], ascii_only: bool) -> Iterator[Text]:
    """Draw one stacked bar, with the names and seconds of its parts below it."""
    if not parts:
        return
    yield Text(f"\n{heading}", style="bold")
    bar, end = Text(), 0.0
    legend: list[Text] = []
    for part, mark in zip(parts, itertools.cycle(ASCII if ascii_only else FULL)):
        start, end = round(text.WIDTH * end), end + part.share
        bar.append(mark * (round(text.WIDTH * end) - start), part.colour)
        words = f" {part.title} {part.seconds} s ({text.percentage(part.share)})"
        legend.append(Text.assemble((mark, part.colour), words))
    yield bar
    yield from _in_rows(legend)


def _in_rows(pieces: Sequence[Text]) -> Iterator[Text]:
    """Join pieces to lines, with two spaces between them; no piece is broken."""
    row = Text()
    for piece in pieces:
        if row and row.cell_len + 2 + piece.cell_len > text.WIDTH:
            yield row
            row = Text()
        row = Text("  ").join((row, piece)) if row else piece
    yield row


def _tiles(tiles: Sequence[Tile]) -> Iterator[Text]:
    """Print the key figures, one per line."""
    yield from [Text("")] if tiles else []
    width = max((len(tile.word) for tile in tiles), default=0)
    for tile in tiles:
        detail = f"  {tile.detail}" if tile.detail else ""
        yield Text.assemble(f"{tile.word:<{width}}  ", (f"{tile.value:>8}", "bold"), (detail, "dim"))


def _findings(screen: FirstScreen) -> Iterator[Text]:
    """Print the largest findings above noise with their remedies, or the line that replaces them."""
    if screen.no_finding:
        yield Text("")
        yield from _wrapped(screen.no_finding, style="dim")
    if screen.findings:
        yield Text(f"\n{sentences.FINDINGS_TITLE}", style="bold")
    for number, row in enumerate(screen.findings[:MOST_FINDINGS], 1):
        yield from _wrapped(f"{number}. {sentences.finding(row)}", "   ")
        yield from _wrapped(f"   Remedy: {row.remedy}", "   ")
    if more := len(screen.findings) - MOST_FINDINGS:
        if more > 0:
            yield Text(f"{more} more: --view findings")
