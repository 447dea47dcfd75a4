"""`dlobd report`: writes runs as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out
from dlobd.cli.output import Force, check_free, write
from dlobd.errors import UsageError


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Bundle paths, run IDs, or latest (the default).")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output file.")] = None,
    index: Annotated[
        Path | None, typer.Option("--index", metavar="DIR", help="List all runs of DIR on one page, DIR/index.html.")
    ] = None,
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Write runs as one HTML page that needs no network: verdict, charts, timeline and tables."""
    if index:
        _list_runs(index, output, force, runs or ())
        return
    from dlobd.bundle import store

    file = output or Path("report.html")
    bundles = [store.find(ref, out) for ref in runs or [store.LATEST]]
    check_free(file, force)
    from dlobd.report.page.data import document
    from dlobd.report.page.render import render
    from dlobd.report.page.source import source

    write(file, render(document([source(bundle) for bundle in bundles])))


def _list_runs(directory: Path, output: Path | None, force: bool, runs: Sequence[str]) -> None:
    """Write the page that lists all runs. The default file is this command's own and may be overwritten."""
    if runs:
        raise UsageError("--index lists all runs of its directory.", f"dlobd report --index {directory}")
    if not directory.is_dir():
        raise UsageError(f"--index {directory}: no such directory.", "name a directory with runs, such as runs")
    file = output or directory / "index.html"
    if output:
        check_free(output, force)
    from dlobd.bundle import store
    from dlobd.report.page.index import index
    from dlobd.report.page.render import render_index

    write(file, render_index(index(store.bundles(directory), file)))
