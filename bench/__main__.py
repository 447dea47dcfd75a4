"""Measures what is missing and writes docs/bench.md: python -m bench [--repeats N] [--out DIR] [--loaded].

The same command goes on where it was ended. It refuses a machine that is busy with something else, unless told.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from bench import cluster, jobs, publish, recorder
from bench.points import points
from dlobd.errors import Busy, DlobdError
from dlobd.paths import replace_file
from dlobd.run import series
from dlobd.run.progress import Progress


def main() -> int:
    """Returns the exit code; an expected failure is one line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--loaded", action="store_true", help="measure on a busy machine too; the table says so")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    try:
        if (busy := series.busy_percent(3.0)) > publish.BUSY_PERCENT and not asked.loaded:
            raise Busy(f"The machine's cores are {busy:.0f} % busy.", "end what runs there, or make bench LOADED=1")
        with Progress() as progress:
            _bench(asked, progress)
    except DlobdError as error:
        print(f"bench: {error.line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("bench: interrupted. Next: the same command goes on", file=sys.stderr)
        return 130
    print(f"Wrote {asked.docs}/bench.md and {asked.docs}/bench.json")
    return 0


def _bench(asked: argparse.Namespace, progress: Progress) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
