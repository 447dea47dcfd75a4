"""Measure launchers, inputs, cluster start and the recorder's overhead, and write docs/results.md.

    python -m bench [--repeats N] [--out DIR] [--loaded]
    python -m bench --republish

Rerun the command to resume. On a busy machine it stops, unless --loaded is given. --republish measures nothing: it
writes its section of the page from stored figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import cluster, command, jobs, publish
from bench.tables import Table, spreads
from dlobd.report import text
from dlobd.run import series_runner
from dlobd.run.progress import Progress
from dlobd.selftest import step_loop
from dlobd.selftest.step_loop import BLOCK_STEPS, Loop

NAME = "bench"
RECORDER = "Step loop with and without the recorder"

Loops = list[dict[str, list[float]] | None]
"""Results of the processes: one `Loop` each, as JSON; None for a failed process."""


def main() -> int:
    """Parse the arguments and run the command; return the exit code."""
    parser = command.parser(NAME, __doc__, repeats=6)
    parser.add_argument(
        "--republish", action="store_true", help="rewrite the page from stored figures, without measurements"
    )
    asked = parser.parse_args()
    if asked.republish:
        republish(asked.docs)
        return 0
    return command.run(asked, NAME, _bench)


def republish(docs: Path) -> None:
    """Rewrite the section of the page from stored figures."""
    found = json.loads((docs / f"{NAME}.json").read_text())
    publish.publish(docs, NAME, found["facts"], tables(found["tables"]))


def _bench(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    starts = cluster.measure(asked.out / "cluster.json", asked.repeats, progress)
    loops = command.repeated(asked.out / "step-loop.json", asked.repeats, lambda seed: _loop(seed, progress))
    found = series_runner.run(series_runner.opened(jobs.points(), 0, asked.out), asked.repeats, progress, progress.keep)
    bundles = {cell: bundle for cell, bundle in sorted(found.ended().items()) if cell.repeat <= asked.repeats}
    runs = {label: [b.read() for cell, b in bundles.items() if cell.point == label] for label in found.points}
    every = [run for each in runs.values() for run in each]
    used = {run.run_id for run in every}
    busy = [begun.busy_percent for begun in found.begun if begun.run_id in used]
    facts = [*publish.machine(every), *publish.loaded(busy)]
    figures = {**jobs.values(runs), cluster.TITLE: cluster.values(starts), RECORDER: {"processes": loops}}
    publish.publish(asked.docs, NAME, facts, tables(figures))
    run_ids = [run.run_id for run in every]
    document = {"facts": facts, "busy_percent": busy, "runs": run_ids, "tables": figures}
    return [asked.docs / publish.PAGE, publish.store(asked.docs, NAME, document)]


def _loop(seed: int, progress: Progress) -> dict[str, list[float]] | None:
    progress("step loop with and without the recorder")
    loop = step_loop.measure(seed)
    return asdict(loop) if loop else None


def tables(found: Mapping[str, Any]) -> list[Table]:
    """Build the tables from stored figures."""
    return [*jobs.tables(found), cluster.table(found[cluster.TITLE]), recorder_table(found[RECORDER]["processes"])]


def recorder_table(measured: Loops) -> Table:
    """Build the table of recording cost per step of the real trainer; each process gives one value."""
    loops = [Loop(tuple(one["off_ns"]), tuple(one["on_ns"])) for one in measured if one]
    added = step_loop.added_ns(loops)
    says = (
        f"Blocks of {BLOCK_STEPS} steps of one rank with and without recording, in turn in one process. The input is "
        "in memory; a step has three spans. Microseconds per step: medians of the blocks of a process, and of the "
        f"differences within its pairs. Added: {text.estimate(added and added.times(1e-3))} us."
    )
    return spreads(
        RECORDER,
        says,
        "processes",
        "median, us",
        {
            "off": [loop.step_ns / 1e3 for loop in loops],
            "on": [statistics.median(loop.on_ns) / 1e3 for loop in loops],
            "added": [loop.added_ns / 1e3 for loop in loops],
        },
    )


if __name__ == "__main__":
    sys.exit(main())
