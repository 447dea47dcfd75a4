"""Measures what is missing and writes docs/bench.md: python -m bench [--repeats N] [--out DIR] [--loaded].

The same command goes on where it was ended. It refuses a machine that is busy with something else, unless told.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import cluster, command, jobs, publish, recorder
from bench.points import points
from dlobd.paths import replace_file
from dlobd.run import series
from dlobd.run.progress import Progress


def main() -> int:
    """Returns the exit code."""
    return command.run(command.parser("bench", __doc__, repeats=5).parse_args(), "bench", _bench)


def _bench(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    starts = cluster.measure(asked.out / "cluster.json", asked.repeats, progress)
    kept = asked.out / "step-loop.json"
    loops: list[Any] = json.loads(kept.read_text()) if kept.exists() else []
    while len(loops) < asked.repeats:
        progress("step loop with and without the recorder")
        loops.append(recorder.measure(seed=len(loops)))
        replace_file(kept, json.dumps(loops).encode())
    found = series.run(series.opened(points(), 0, asked.out), asked.repeats, progress, progress.keep)
    bundles = {cell: bundle for cell, bundle in sorted(found.ended().items()) if cell.repeat <= asked.repeats}
    runs = {label: [b.read() for cell, b in bundles.items() if cell.point == label] for label in found.points}
    every = [run for each in runs.values() for run in each]
    busy = [percent for run_id, percent in found.busy().items() if run_id in {run.run_id for run in every}]
    loop = recorder.table(loops[: asked.repeats])
    publish.publish(asked.docs, [*jobs.tables(runs), cluster.table(starts), loop], busy, every)
    return [asked.docs / "bench.md", asked.docs / "bench.json"]


if __name__ == "__main__":
    sys.exit(main())
