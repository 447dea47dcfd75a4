"""`dlobd import`: computes the record of a run from the evidence in its bundle."""

from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.cli.printing import find_run, print_result


def import_(
    run: RunRef = "latest",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Directory for run.json. Default: the bundle.")
    ] = None,
    out: Out = RUNS,
) -> int:
    """Compute the record of a run from its evidence, and show its wall time by layer.

    A run lacks its record if dlobd was killed after the job, or if memory or disk did not suffice. The evidence of a
    bundle with hashes must be unchanged. --to leaves the bundle as it is, for a full or read-only disk."""
    from dlobd.recompute.computed import store

    return print_result(store(find_run(run, out), to))
