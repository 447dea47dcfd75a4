"""Run one job natively and through the stack, and write docs/results.md, its picture and the README's.

    python -m bench.stack_overhead [--repeats N] [--experiment NAME] [--ways WAY...] [--loaded]

A way is a launcher, or launcher and input: tfos, "tfos read". Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.studies import estimates, pictures
from analysis.studies.stack_overhead import PUBLISHED, StackOverhead, layer_table, stack_overhead, table
from analysis.studies.stack_overhead import picture as draw
from bench import command, publish
from bench.tables import of_frame
from dlobd.compare.compatibility import NATIVE, launch_label
from dlobd.compare.runset import load
from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.record.run import Run
from dlobd.run import series_runner
from dlobd.run.progress import Progress
from dlobd.schema import Experiment

NAME = "stack-overhead"

WAYS = ("native", "tfos-stock feed", "tfos feed", "barrier feed", "distributor", "tfos read", "barrier read")
"""Every launcher: fed by Spark if possible, and reading like native runs, so that inputs are comparable."""


def points(experiment: str, ways: Sequence[str]) -> dict[str, Experiment]:
    """Return label to experiment, for each `launcher` or `launcher input`.

    Raises:
        UsageError: there is no such experiment or way, or native is not among them.
    """
    split = [one.partition(" ") for one in ways]
    # warm: all runs start with the same page cache
    every = [
        files.load(experiment, [f"launcher={a}", *([f"input={b}"] if b else []), "page_cache=warm"])
        for a, _, b in split
    ]
    found = {launch_label(each): each for each in every}
    if NATIVE not in found:
        raise UsageError("Without native runs there is no baseline.", "add native to --ways")
    return found


def main() -> int:
    """Return the exit code."""
    parser = command.parser(NAME, __doc__, repeats=6)
    parser.add_argument("--experiment", default="softmax-mnist", help="a shipped experiment or a TOML file")
    parser.add_argument("--ways", nargs="+", default=WAYS, metavar="WAY")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    chosen = points(asked.experiment, asked.ways)
    found = series_runner.run(series_runner.opened(chosen, 0, asked.out), asked.repeats, progress, progress.keep)
    every = load([found.path])
    return write(
        stack_overhead(every, asked.loaded),
        every.runs,
        publish.busy_before(found),
        asked.docs,
        asked.readme,
    )


def write(found: StackOverhead, runs: Sequence[Run], busy: Sequence[float], docs: Path, readme: Path) -> list[Path]:
    """Write picture and tables into docs/, and the picture with its numbers into the README; return the files."""
    page, picture = docs / publish.PAGE, docs / "stack_overhead.svg"
    docs.mkdir(parents=True, exist_ok=True)
    pictures.write(draw(found), picture)
    facts = [*publish.machine(runs), *publish.loaded(busy), *(f"**{words}**" for words in found.warnings)]
    image = f"![Native against in-stack, by layer]({picture.name})"
    layers = "Overhead of each layer in seconds; the first row has the seconds of native runs:"
    tables = [estimates.BY_ITSELF, of_frame(table(found)), PUBLISHED, layers, of_frame(layer_table(found))]
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
