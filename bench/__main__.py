"""Measures what is missing and writes docs/results.md: python -m bench [--repeats N] [--out DIR] [--loaded].

Rerun the command to resume. It refuses a busy machine without --loaded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import cluster, command, jobs, publish, recorder
from bench.points import points
from bench.tables import Table
from dlobd.paths import replace_file
from dlobd.run import series_runner
from dlobd.run.progress import Progress

NAME = "bench"


def main() -> int:
    """Return the exit code."""
    return command.run(command.parser(NAME, __doc__, repeats=6).parse_args(), NAME, _bench)


def _bench(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    starts = cluster.measure(asked.out / "cluster.json", asked.repeats, progress)
    kept = asked.out / "step-loop.json"
    loops: list[Any] = json.loads(kept.read_text()) if kept.exists() else []
    while len(loops) < asked.repeats:
        progress("step loop with and without the recorder")
        loops.append(recorder.measure(seed=len(loops)))
        replace_file(kept, json.dumps(loops).encode())
    found = series_runner.run(series_runner.opened(points(), 0, asked.out), asked.repeats, progress, progress.keep)
    bundles = {cell: bundle for cell, bundle in sorted(found.ended().items()) if cell.repeat <= asked.repeats}
    runs = {label: [b.read() for cell, b in bundles.items() if cell.point == label] for label in found.points}
    every = [run for each in runs.values() for run in each]
    busy = [percent for run_id, percent in found.busy().items() if run_id in {run.run_id for run in every}]
    document: dict[str, Any] = {
        "facts": [*publish.machine(every), *publish.loaded(busy)],
        "busy_percent": busy,
        "runs": [run.run_id for run in every],
        "tables": {
            **jobs.values(runs),
            cluster.TITLE: cluster.values(starts),
            recorder.TITLE: {"processes": loops[: asked.repeats]},
        },
    }
    publish.store(asked.docs, NAME, document)
    publish.publish(asked.docs, NAME, document["facts"], tables(document["tables"]))
    return [asked.docs / publish.PAGE, asked.docs / f"{NAME}.json"]


def tables(found: Mapping[str, Any]) -> list[Table]:
    """Of the document's `tables`."""
    loop = recorder.table(found[recorder.TITLE]["processes"])
    return [*jobs.tables(found), cluster.table(found[cluster.TITLE]), loop]


if __name__ == "__main__":
    sys.exit(main())
