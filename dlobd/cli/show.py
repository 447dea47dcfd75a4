"""`dlobd show`: prints a run in the terminal."""

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Json, Out, RunRef
from dlobd.cli.printing import console, find_run, print_bundle, print_json, print_run, print_series, warn_if_changed
from dlobd.errors import UsageError


def show(
    run: RunRef = "latest",
    views: Annotated[
        list[str] | None,
        typer.Option("--view", metavar="NAME", help="Show only this view (dlobd list views); repeatable."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show all views except the overview.")] = False,
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour",
            metavar="P",
            min=0,
            help="Show the cost of the run, for a cluster that costs P per hour.",
        ),
    ] = None,
    out: Out = RUNS,
    as_json: Json = False,
    others: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="More runs: shows bars and differences of all.")
    ] = None,
) -> None:
    """Show a run on one screen: wall time by layer, and findings (possible savings). --full shows all other views.

    Several runs are shown as bars below each other, with differences by layer and the statistical verdict. For a series
    file (series-KEY.json, or series-KEY.json:POINT), show the tables of its finished runs.
    """
    from dlobd.compare.runset import series_runs
    from dlobd.experiment import user_config

    if full and views:
        raise UsageError("--full and --view cannot be combined.", "omit one of these options")
    if others:
        if full or views or as_json or price is not None:
            raise UsageError("Several runs have one view.", "omit the options, or show one run")
        from dlobd.report.terminal.overview import several

        several([find_run(one, out).read() for one in (run, *others)], console())
        return
    if as_json and (full or views or price is not None):
        raise UsageError("--json prints run.json, which has no views and no costs.", "omit the other options")
    if series := series_runs(run):
        if full or views or price is not None:
            raise UsageError("--full, --view and --price-per-hour show a single run.", "name a run of the series")
        if as_json:
            print_json([bundle.read_json() for bundle in series[1].values()])
        else:
            print_series(*series)
        return
    bundle = find_run(run, out)
    if as_json:
        print_json(bundle.read_json())
        return
    price = user_config.read().price or None if price is None else price
    found = bundle.read()
    print_run(bundle, found, views or (), full)
    if price is not None:
        from dlobd.report.tables import cost
        from dlobd.report.terminal import render

        render.show(cost(found, price), console())
    warn_if_changed(bundle, found)
    print_bundle(bundle, found)
