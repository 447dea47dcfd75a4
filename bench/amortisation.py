"""Measure fixed cost and cost per epoch of each launcher, check them by long runs, and write docs/results.md.

    python -m bench.amortisation [--repeats N] [--long-repeats N] [--experiment NAME] [--ways WAY...] [--loaded]

Runs of 1, 2 and 3 epochs are interleaved; runs of 8 and 50 epochs follow. Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.studies import estimates, pictures
from analysis.studies.amortisation import PREDICTIONS, Amortisation, amortisation, check_table, prediction_table, table
from analysis.studies.amortisation import picture as draw
from analysis.studies.runs import load
from bench import command, publish, stack_overhead
from bench.tables import of_frame
from dlobd.record.run import Run
from dlobd.run import series_runner
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

NAME = "amortisation"

WAYS = ("native", "tfos-stock feed", "tfos feed", "barrier feed", "distributor")

SHORT, LONG = (1, 2, 3), (8, 50)
"""Numbers of epochs of the runs that fit the lines, and of the runs that check the lines."""

MIN_ACCURACY = 0.7
"""Minimum accuracy of each run; low, because the study measures time only."""


def points(experiment: str, ways: Sequence[str], epochs: Sequence[int]) -> dict[str, Experiment]:
    """Return experiments by label, for each way and number of epochs."""
    return {
        f"{label}, epochs {each}": replace(one, epochs=each, min_accuracy=MIN_ACCURACY)
        for label, one in stack_overhead.points(experiment, ways).items()
        for each in epochs
    }


def main() -> int:
    """Run the command; return the exit code."""
    parser = stack_overhead.parser(NAME, __doc__, WAYS)
    parser.add_argument("--long-repeats", type=int, default=2, help="repeats of the long runs; 0: none")
    parser.add_argument("--short", type=int, nargs="+", default=SHORT, metavar="EPOCHS")
    parser.add_argument("--long", type=int, nargs="+", default=LONG, metavar="EPOCHS")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    made = []
    for epochs, repeats in ((asked.short, asked.repeats), (asked.long, asked.long_repeats)):
        chosen = points(asked.experiment, asked.ways, epochs)
        if repeats:
            made.append(series_runner.run(series_runner.opened(chosen, 0, asked.out), repeats, progress, progress.keep))
    every = load([one.path for one in made])
    busy = publish.busy_before(*made)
    return write(amortisation(every, asked.loaded), every.runs, busy, asked.docs, asked.long)


def write(
    found: Amortisation, runs: Sequence[Run], busy: Sequence[float], docs: Path, epochs: Sequence[int] = LONG
) -> list[Path]:
    """Write curve and tables to docs/; return the paths."""
    picture = docs / "amortisation.svg"
    docs.mkdir(parents=True, exist_ok=True)
    pictures.write(draw(found), picture)
    parts = [f"![Stack overhead over epochs]({picture.name})", f"Fixed cost and cost per epoch. {estimates.BY_ITSELF}"]
    parts += [of_frame(table(found))]
    parts += [f"Predicted wall time of one more run. {PREDICTIONS}", of_frame(prediction_table(found, epochs))]
    if found.checks:
        parts += ["Long runs, which were not used to fit the lines:", of_frame(check_table(found))]
    return [publish.of_runs(docs, NAME, runs, busy, parts, found.warnings), picture]


if __name__ == "__main__":
    sys.exit(main())
