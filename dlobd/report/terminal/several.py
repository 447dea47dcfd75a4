"""Several runs in the terminal: bars below each other, differences by layer, then the statistical verdict."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from rich.console import Console

from dlobd.record.run import Run
from dlobd.report import text
from dlobd.report.first_screen import first_screen
from dlobd.report.page.compared import compared
from dlobd.report.terminal.overview import print_bar
from dlobd.report.terminal.render import show


def several(runs: Sequence[Run], console: Console) -> None:
    """Print runs with labels A, B, and so on; the first is the baseline. A run that is given twice is shown once."""
    kept = list({str(run.to_json()): run for run in runs}.values())
    for run_id in dict.fromkeys(run.run_id for run in runs if sum(one == run for one in runs) > 1):
        text.line(console, f"Run {run_id} was given more than once: it is shown once.", "yellow")
    labels = [ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1) for place in range(len(kept))]
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
    found: dict[str, Any] = compared(kept, labels)
    for note in found["notes"]:
        text.line(console, note, "yellow")
    show(found["differences"], console)
    verdicts = [pair["sentence"] for pair in found["pairs"]] or [f"no statistical verdict: {found['refused']}"]
    text.line(console, "\n" + "\n".join(verdicts), "bold")
