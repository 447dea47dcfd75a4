"""Run one job natively and through the stack; write docs/results.md and its picture.

    python -m bench.stack_overhead [--repeats N] [--experiment NAME] [--ways WAY...] [--loaded]

A way is a launcher, or launcher and input: tfos, "tfos read". Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.studies import estimates, pictures
from analysis.studies.runs import NATIVE, launch_label, load
from analysis.studies.stack_overhead import PUBLISHED, StackOverhead, layer_table, stack_overhead, table
from analysis.studies.stack_overhead import picture as draw
from bench import command, publish
from bench.tables import of_frame
from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.record.run import Run
from dlobd.run import series_runner
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

NAME = "stack-overhead"

WAYS = ("native", "tfos-stock feed", "tfos feed", "barrier feed", "distributor", "tfos read", "barrier read")
"""All launchers, with Spark's feed if possible, and with the input of native runs for an equal comparison."""


def points(experiment: str, ways: Sequence[str]) -> dict[str, Experiment]:
    """Return experiments by label, for each `launcher` or `launcher input`.

    Raises:
        UsageError: unknown experiment or way, or native is missing.
    """
    found = {}
    for launcher, _, source in (way.partition(" ") for way in ways):
        # warm: all runs start with the same page cache
        settings = [f"launcher={launcher}", *[f"input={source}"] * bool(source), "page_cache=warm"]
        each = files.load(experiment, settings)
        found[launch_label(each)] = each
    if NATIVE not in found:
        raise UsageError("The comparison needs native runs as a baseline.", "add native to --ways")
    return found


def parser(name: str, described: str | None, ways: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of a command that compares ways of running an experiment."""
    made = command.parser(name, described, repeats=6)
    made.add_argument("--experiment", default="softmax-mnist", help="a shipped experiment or a TOML file")
    made.add_argument("--ways", nargs="+", default=ways, metavar="WAY")
    return made


def main() -> int:
    """Run the command; return the exit code."""
    return command.run(parser(NAME, __doc__, WAYS).parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    chosen = points(asked.experiment, asked.ways)
    made = series_runner.run(series_runner.opened(chosen, 0, asked.out), asked.repeats, progress, progress.keep)
    every = load([made.path])
    found, busy = stack_overhead(every, asked.loaded), publish.busy_before(made)
    return write(found, every.runs, busy, asked.docs)


def write(found: StackOverhead, runs: Sequence[Run], busy: Sequence[float], docs: Path) -> list[Path]:
    """Write picture and tables to docs/; return the paths."""
    picture = docs / "stack_overhead.svg"
    docs.mkdir(parents=True, exist_ok=True)
    pictures.write(draw(found), picture)
    image = f"![Native against in-stack, by layer]({picture.name})"
    layers = "Overhead of each layer in seconds; the first row has the seconds of native runs:"
    tables = [estimates.BY_ITSELF, of_frame(table(found)), PUBLISHED, layers, of_frame(layer_table(found))]
    page = publish.of_runs(docs, NAME, runs, busy, [image, *tables], found.warnings)
    return [page, picture]


if __name__ == "__main__":
    sys.exit(main())
