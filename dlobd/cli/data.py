"""`dlobd data list | fetch`: lists and downloads data sets."""

from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import Json
from dlobd.cli.printing import print_json

app = typer.Typer(help="List and download data sets.", no_args_is_help=True)


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """Show the data sets (whole, partial, missing or generated) and the folders of their files."""
    from dlobd.run import data_sets

    rows = data_sets.local()
    if as_json:
        print_json(rows)
        return
    for row in rows:
        size = f"{row.bytes / 1e6:.1f} MB" if row.bytes else ""
        print(f"{row.name:16} {row.state:10} {size:>10}  {row.why or row.where or ''}".rstrip())


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the data set: cifar10.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL_OR_DIRECTORY",
            help="URL of the archive, or a local directory that contains it. Default: the authors' site.",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Data folder for the files. Default: the cache.")
    ] = None,
) -> None:
    """Download a complete data set, and verify its published checksums. Resumes an interrupted download."""
    from dlobd.paths import fetched_dir
    from dlobd.run import data_sets
    from dlobd.run.progress import Progress

    dataset = data_sets.published(name)
    top = to.expanduser().absolute() if to else fetched_dir()
    with Progress() as progress:
        folder = data_sets.fetch(dataset, source, top, progress)
    print(f"{name} is in {folder}" + (f"; use it with DLOBD_DATA={top}" if to else ""))
