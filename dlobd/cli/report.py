"""`dlobd report`: writes runs as an HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import LATEST_HELP, RUNS, Out
from dlobd.cli.output import STDOUT, Force, Output, checked, write
from dlobd.cli.printing import find_run, warn_if_changed
from dlobd.errors import UsageError

TYPES = (".html", ".htm")


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help=f"Bundle paths, run IDs, series files, or {LATEST_HELP}."),
    ] = None,
    output: Output = None,
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
    from dlobd.compare.runset import series_runs

    bundles: list[store.Bundle] = []
    for ref in runs or [store.LATEST]:
        series = series_runs(ref)
        chosen = series[1].values() if series else [find_run(ref, out)]
        bundles += chosen
    first, *others = bundles
    name = f"report-and-{len(others)}-more.html" if others else "report.html"
    file = checked(output, first.path / name, TYPES, force)
    from dlobd.report.page.data import document, source
    from dlobd.report.page.render import render

    sources = [source(bundle) for bundle in bundles]
    for bundle, found in zip(bundles, sources, strict=True):
        warn_if_changed(bundle, found.run)
    write(file, render(document(sources)))
    if file != STDOUT:
        print(f"open: {file.absolute().as_uri()}")


def _list_runs(directory: Path, output: Path | None, force: bool, runs: Sequence[str]) -> None:
    """Write the page that lists all runs. The default file is this command's own and may be overwritten."""
    if runs:
        raise UsageError("--index lists all runs of its directory.", f"dlobd report --index {directory}")
    if not directory.is_dir():
        raise UsageError(f"--index {directory}: no such directory.", "name a directory with runs, such as runs")
    file = checked(output, directory / "index.html", TYPES, force)
    from dlobd.bundle import store
    from dlobd.report.page.render import render_index

    write(file, render_index(store.bundles(directory), file))
