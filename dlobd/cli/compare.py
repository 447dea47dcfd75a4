"""`dlobd compare`: compares the wall time and the layers of runs."""

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Allow, Json, Out, allowed, share
from dlobd.cli.printing import console, print_json

RUNSET = "a series file (series-KEY.json), one of its points (series-KEY.json:POINT), a directory of bundles, or a run"


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=f"Baseline: {RUNSET}.")],
    second: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="Candidate, in the same form as A. Default: the other points of A."),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", parser=share, metavar="SHARE", help="Equivalence margin, relative to A.")
    ] = "5%",  # type: ignore[assignment]  # typer parses defaults too
    allow: Allow = None,
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Compare wall time and each layer of B with A: faster, slower, equivalent or inconclusive.

    Each run is one observation. Points of one series are paired by repeat; other runs are compared as two independent
    samples. Exit code 2: the environments of the runs differ, and --allow does not accept it.
    """
    from dlobd.compare import comparison
    from dlobd.compare.runset import pairs
    from dlobd.report.comparison import show

    found = comparison.compare(pairs(first, second, out), margin, allowed(allow))
    if as_json:
        print_json(found)
    else:
        show(found, console())
    return 0
