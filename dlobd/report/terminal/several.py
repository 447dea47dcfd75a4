"""Several runs in the terminal: bars below each other, differences by layer, then the statistical verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from dlobd.record.run import Run
from dlobd.report import text
from dlobd.report.compared import compared, labelled
from dlobd.report.first_screen import first_screen
from dlobd.report.terminal.overview import print_bar
from dlobd.report.terminal.render import show


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
    for note in found["notes"]:
        text.line(console, note, "yellow")
    show(found["differences"], console)
    verdicts = [pair["sentence"] for pair in found["pairs"]] or [f"no statistical verdict: {found['refused']}"]
    text.line(console, "\n" + "\n".join(verdicts), "bold")
