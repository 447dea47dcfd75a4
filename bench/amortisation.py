"""Measures fixed cost and cost per epoch of each launcher, checks them by long runs, and writes docs/results.md.

    python -m bench.amortisation [--repeats N] [--long-repeats N] [--experiment NAME] [--ways WAY...] [--loaded]

Runs of 1, 2 and 3 epochs are interleaved; those of 8 and 50 epochs follow. The same command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import command, publish, stack_overhead
from bench.tables import of_frame
from dlobd.bundle.run import Run
from dlobd.report import blocks, charts, paired, pictures
from dlobd.report.amortisation import PREDICTIONS, Amortisation, amortisation, check_table, prediction_table, table
from dlobd.run import series
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

NAME = "amortisation"

WAYS = ("native", "tfos-stock feed", "tfos feed", "barrier feed", "distributor")

SHORT, LONG = (1, 2, 3), (8, 50)
"""Epochs of the runs that give the lines, and of those that check them."""

MIN_ACCURACY = 0.7
"""Of every run, however short; what they learn is not the question."""


def points(experiment: str, ways: Sequence[str], epochs: Sequence[int]) -> dict[str, Experiment]:
    """Label to experiment: every way with every number of epochs."""
    return {
        f"{label}, epochs {each}": replace(one, epochs=each, min_accuracy=MIN_ACCURACY)
        for label, one in stack_overhead.points(experiment, ways).items()
        for each in epochs
    }


def main() -> int:
    """Returns the exit code."""
    parser = command.parser(NAME, __doc__, repeats=6)
    parser.add_argument("--long-repeats", type=int, default=2, help="of the long runs; 0: none")
    parser.add_argument("--experiment", default="softmax-mnist", help="a shipped experiment or a TOML file")
    parser.add_argument("--ways", nargs="+", default=WAYS, metavar="WAY")
    parser.add_argument("--short", type=int, nargs="+", default=SHORT, metavar="EPOCHS")
    parser.add_argument("--long", type=int, nargs="+", default=LONG, metavar="EPOCHS")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    made = []
    for epochs, repeats in ((asked.short, asked.repeats), (asked.long, asked.long_repeats)):
        chosen = points(asked.experiment, asked.ways, epochs)
        if repeats:
            made.append(series.run(series.opened(chosen, 0, asked.out), repeats, progress, progress.keep))
    every = blocks.taken([one.path for one in made])
    busy = publish.busy_before(*made)
    return write(amortisation(every, asked.loaded), [one.run for one in every], busy, asked.docs, asked.long)


def write(
    found: Amortisation, runs: Sequence[Run], busy: Sequence[float], docs: Path, epochs: Sequence[int] = LONG
) -> list[Path]:
    """Curve and tables into docs/; returns the files."""
    page, picture = docs / publish.PAGE, docs / "amortisation.svg"
    docs.mkdir(parents=True, exist_ok=True)
    pictures.write(charts.amortisation(found), picture)
    facts = [*publish.machine(runs), *publish.loaded(busy), *(f"**{words}**" for words in found.warnings)]
    parts = [f"![Stack overhead over epochs]({picture.name})", f"Fixed cost and cost per epoch. {paired.BY_ITSELF}"]
    parts += [of_frame(table(found))]
    parts += [f"What one more run would take. {PREDICTIONS}", of_frame(prediction_table(found, epochs))]
    if found.checks:
        parts += ["What long runs took, which gave nothing to the lines:", of_frame(check_table(found))]
    publish.page(page, NAME, facts, parts)
    return [page, picture]


if __name__ == "__main__":
    sys.exit(main())
