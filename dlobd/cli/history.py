"""`dlobd history`: lists the runs of a directory."""

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Json, Out
from dlobd.cli.printing import console, print_json
from dlobd.errors import UsageError

MOST = 20


def history(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[EXPERIMENT]...", help="Only runs of these experiments."),
    ] = None,
    statuses: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs with this status, such as ok; repeatable."),
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help="date, experiment, wall, training or layer.")
    ] = "date",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Largest number of runs; 0: all.")] = MOST,
    out: Out = RUNS,
    as_json: Json = False,
) -> None:
    """List runs, the newest first: date, experiment, status, largest layer, wall time and training time."""
    from dlobd.bundle import store
    from dlobd.registry import unknown
    from dlobd.report import history as listing
    from dlobd.report.repeats import WIDTH

    if sort not in listing.SORTS:
        raise UsageError(unknown("column", sort, listing.SORTS), "dlobd history --help")
    bundles = [one for one in store.bundles(out) if not experiments or one.path.parent.name in experiments]
    found = listing.rows(bundles, statuses or (), sort, limit)
    if as_json:
        print_json(found)
        return
    if not found:
        print(f"no such runs in {out}" if experiments or statuses else f"no runs in {out}")
        return
    listing.show(found, console(WIDTH))
    if limit and len(bundles) > len(found) == limit:
        print(f"{len(bundles)} runs in total: --limit 0 lists all")
