"""dlobd compare"""

from __future__ import annotations

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Allow, Json, Out, allowed, share
from dlobd.cli.printing import print_json

SIDE = "a series file (series-KEY.json), one of its points (series-KEY.json:POINT), a directory of bundles, or a run"


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=f"What is compared with: {SIDE}.")],
    second: Annotated[
        str | None, typer.Argument(metavar="[B]", help="What is compared; without it, the other points of series A.")
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", parser=share, metavar="SHARE", help="A smaller difference does not matter.")
    ] = "5%",  # type: ignore[assignment]  # typer parses defaults too
    allow: Allow = None,
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Say whether B is faster than A, slower or equivalent, for the wall and each layer, and how sure that is.

    The run is the unit. Points of one series are compared within its repeats, other runs as two samples. Exit code 2
    if the runs' environments differ, unless allowed. See docs/comparing.md.
    """
    from dlobd.report.comparison import comparison, document
    from dlobd.report.sides import pairs

    found = comparison(pairs(first, second, out), margin, allowed(allow))
    if as_json:
        print_json(document(found))
        return 0
    from rich.console import Console

    from dlobd.report.comparison_view import show

    show(found, Console(highlight=False))
    return 0
