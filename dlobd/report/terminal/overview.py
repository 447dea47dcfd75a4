"""Overview of a run, or of several runs: the first screen in the terminal. Text to be copied is not wrapped."""

import itertools
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from dlobd.record.run import Run
from dlobd.report import sentences, text
from dlobd.report.comparison import compared, labelled
from dlobd.report.first_screen import Broken, FirstScreen, Part, Tile, first_screen
from dlobd.report.terminal.render import show

MARKS, ASCII_MARKS = "█▓▒░", "#=+-"
"""Marks of the parts of a bar, in turn: neighbours differ without colour, too."""

MOST_FINDINGS = 3


def overview(run: Run, console: Console, bundle: str = "") -> None:
    """Print the overview. `bundle`: path of the bundle for a command line, if it has one."""
    screen = first_screen(run, bundle)
    text.line(console, screen.headline, "bold")
    named = [f"run {run.run_id}", run.experiment, f"status {run.status}"]
    _print_in_rows([Text(words, "dim") for words in (*named, *map(" ".join, screen.subtitle))], console)
    if screen.failure:
        _print_failure(screen.failure, console)
    print_bar("Wall time by layer", screen.layers, console)
    print_bar("Phases", screen.phases, console)
    _print_tiles(screen.tiles, console)
    _print_findings(screen, console, bundle)
    notes = [*filter(None, [screen.lost_work]), *(f"warning: {words}" for words in screen.warnings)]
    if notes:
        console.print()
    for words in notes:
        text.line(console, words, "yellow", "  ")


def several(runs: Sequence[Run], console: Console) -> None:
    """Print runs with labels A, B, and so on; the first is the baseline. A run that is given twice is shown once."""
    labels, repeated = labelled(runs)
    for note in repeated:
        text.line(console, note, "yellow")
    kept = [runs[place] for place in labels.values()]
    longest_ns = max([run.wall_ns or 0 for run in kept] + [1])
    for label, run in zip(labels, kept, strict=True):
        screen = first_screen(run)
        text.line(console, f"\n{label}: {screen.headline}", "bold")
        text.line(console, f"run {run.run_id}  {run.experiment}  status {run.status}", "dim")
        if screen.failure:
            text.line(console, screen.failure.reason, "bold red")
        print_bar("", screen.layers, console, (run.wall_ns or 0) / longest_ns)
        for words in screen.warnings:
            text.line(console, f"warning: {words}", "yellow")
    if len(kept) < 2:
        return
    found: dict[str, Any] = compared(kept, list(labels))
    show(found["differences"], console)
    verdicts = [pair["sentence"] for pair in found["pairs"]] or [f"no statistical verdict: {found['refused']}"]
    text.line(console, "\n" + "\n".join(verdicts), "bold")


def print_bar(heading: str, parts: Sequence[Part], console: Console, scale: float = 1.0) -> None:
    """Print one stacked bar, with the names and seconds of its parts below it. `scale`: its fraction of the width."""
    if not parts:
        return
    if heading:
        text.heading(console, heading)
    width, drawn, end, legend = text.columns(console), Text(), 0.0, []
    for part, mark in zip(parts, itertools.cycle(ASCII_MARKS if console.options.ascii_only else MARKS)):
        start, end = round(width * end), end + part.share * scale
        drawn.append(mark * (round(width * end) - start), part.colour)
        words = f" {part.title} {part.seconds} s ({text.percentage(part.share)})"
        legend.append(Text.assemble((mark, part.colour), words))
    console.print(drawn, soft_wrap=True)
    _print_in_rows(legend, console)


def _print_in_rows(pieces: Sequence[Text], console: Console) -> None:
    """Print pieces in lines, two spaces apart; no piece is broken."""
    row = Text()
    for piece in pieces:
        if row and row.cell_len + 2 + piece.cell_len > text.columns(console):
            console.print(row, soft_wrap=True)
            row = Text()
        row = Text("  ").join((row, piece)) if row else piece
    console.print(row, soft_wrap=True)


def _print_failure(failure: Broken, console: Console) -> None:
    text.heading(console, failure.reason)
    for name, fact in failure.facts.items():
        text.line(console, f"{name}: {fact}")
    for line in failure.traceback:
        console.print(Text(line, "dim"), soft_wrap=True)
    if failure.next_step:
        console.print(Text(f"Next: {failure.next_step}", "bold"), soft_wrap=True)


def _print_tiles(tiles: Sequence[Tile], console: Console) -> None:
    if tiles:
        console.print()
    width = max((len(tile.word) for tile in tiles), default=0)
    for tile in tiles:
        detail = (f"  {tile.detail}" if tile.detail else "", "dim")
        console.print(Text.assemble(f"{tile.word:<{width}}  ", (tile.value, "bold"), detail), soft_wrap=True)


def _print_findings(screen: FirstScreen, console: Console, bundle: str) -> None:
    """Print the largest findings above noise with their remedies, or the line that replaces them."""
    if screen.no_finding:
        text.line(console, f"\n{screen.no_finding}", "dim")
    if not screen.findings:
        return
    text.heading(console, sentences.FINDINGS_TITLE)
    for number, row in enumerate(screen.findings[:MOST_FINDINGS], 1):
        text.line(console, f"{number}. {sentences.finding(row)}", hanging="   ")
        text.line(console, f"   Remedy: {row.remedy}")
    if len(screen.findings) > MOST_FINDINGS:
        where = f"dlobd show {bundle} --view findings" if bundle else "see the view `findings`"
        console.print(f"{len(screen.findings) - MOST_FINDINGS} more: {where}", markup=False, soft_wrap=True)
