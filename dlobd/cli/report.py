"""`dlobd report`: writes runs as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out
from dlobd.cli.output import Force, check_free, write


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Bundle paths, run IDs, or latest (the default).")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file.")] = Path("report.html"),
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Write runs as one HTML page that needs no network: verdict, charts, timeline and tables."""
    from dlobd.bundle import store

    bundles = {bundle.path: bundle for bundle in (store.find(ref, out) for ref in runs or [store.LATEST])}
    check_free(output, force)
    from dlobd.report.page.data import document
    from dlobd.report.page.render import render
    from dlobd.report.page.source import source

    write(output, render(document([source(bundle) for bundle in bundles.values()])))
