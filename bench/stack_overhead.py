"""Runs one job natively and through the stack, and writes docs/results.md, its picture and README's.

    python -m bench.stack_overhead [--repeats N] [--experiment NAME] [--ways WAY...] [--loaded]

A way is a launcher, or launcher and input: tfos, "tfos read". The same command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import command, publish
from bench.tables import of_frame
from dlobd.bundle.run import Run
from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.report import blocks, charts, paired, pictures
from dlobd.report.stack_overhead import PUBLISHED, StackOverhead, layer_table, stack_overhead, table
from dlobd.run import series
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

NAME = "stack-overhead"

WAYS = ("native", "tfos-stock feed", "tfos feed", "barrier feed", "distributor", "tfos read", "barrier read")
"""Every launcher; fed by Spark where it can be, and read by the ranks as native reads, so that inputs compare."""


def points(experiment: str, ways: Sequence[str]) -> dict[str, Experiment]:
    """Label to experiment, each by `launcher` or `launcher input`.

    Raises:
        UsageError: there is no such experiment or way, or native is not among them.
    """
    split = [one.partition(" ") for one in ways]
    # warm: whatever the machine did before, all runs find the same
    every = [
        files.load(experiment, [f"launcher={a}", *([f"input={b}"] if b else []), "page_cache=warm"])
        for a, _, b in split
    ]
    found = {blocks.label(each): each for each in every}
    if blocks.NATIVE not in found:
        raise UsageError("Without native runs there is nothing to compare with.", "add native to --ways")
    return found


def main() -> int:
    """Returns the exit code."""
    parser = command.parser(NAME, __doc__, repeats=6)
    parser.add_argument("--experiment", default="softmax-mnist", help="a shipped experiment or a TOML file")
    parser.add_argument("--ways", nargs="+", default=WAYS, metavar="WAY")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    chosen = points(asked.experiment, asked.ways)
    found = series.run(series.opened(chosen, 0, asked.out), asked.repeats, progress, progress.keep)
    every = blocks.taken([found.path])
    return write(
        stack_overhead(every, asked.loaded),
        [one.run for one in every],
        publish.busy_before(found),
        asked.docs,
        asked.readme,
    )


def write(found: StackOverhead, runs: Sequence[Run], busy: Sequence[float], docs: Path, readme: Path) -> list[Path]:
    """Picture and tables into docs/, and the picture with its numbers into the README; returns the files."""
    page, picture = docs / publish.PAGE, docs / "stack_overhead.svg"
    docs.mkdir(parents=True, exist_ok=True)
    pictures.write(charts.stack_overhead(found), picture)
    facts = [*publish.machine(runs), *publish.loaded(busy), *(f"**{words}**" for words in found.warnings)]
    image = f"![Native against in-stack, by layer]({picture.name})"
    layers = "Seconds of each layer on top of native; the first row is native's own seconds:"
    tables = [paired.BY_ITSELF, of_frame(table(found)), PUBLISHED, layers, of_frame(layer_table(found))]
    publish.page(page, NAME, facts, [image, *tables])
    there = f"{docs.name}/{picture.name}"
    shown = f"![The main job natively and through the stack: seconds by layer]({there})"
    says = "Means over `n` runs of the main job, interleaved; in brackets 95 % intervals with their coverage."
    more = f"More: [results]({docs.name}/{page.name}#native-against-in-stack)."
    publish.page(
        readme,
        NAME,
        [],
        [shown, of_frame(table(found)[["", "n", "wall, s", "ratio to native", "coverage"]]), says, more],
    )
    return [page, picture, readme]


if __name__ == "__main__":
    sys.exit(main())
