"""dlobd data list | fetch"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import Json
from dlobd.cli.printing import print_json

app = typer.Typer(help="Data sets on this machine.", no_args_is_help=True)


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """Show the data sets: whole, partial, missing or generated, and where their files are."""
    import dataclasses

    from dlobd.run import data_sets

    found = data_sets.found()
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    for one in found:
        size = f"{one.bytes / 1e6:.1f} MB" if one.bytes else ""
        print(f"{one.name:16} {one.state:10} {size:>10}  {one.why or one.where or ''}".rstrip())


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the data set: cifar10.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL_OR_DIRECTORY",
            help="Another copy of the archive, or a directory that holds it. Default: its authors' site.",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Data folder to put it into. Default: the cache.")
    ] = None,
) -> None:
    """Fetch a whole data set, checked against its published checksums. A download that broke off is continued."""
    from dlobd.paths import fetched_dir
    from dlobd.run import data_sets
    from dlobd.run.progress import Progress

    what = data_sets.published(name)
    top = to.expanduser().absolute() if to else fetched_dir()
    with Progress() as progress:
        folder = data_sets.fetch(what, source, top, progress)
    print(f"{name} is in {folder}" + (f"; use it with DLOBD_DATA={top}" if to else ""))
