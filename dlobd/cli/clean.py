"""`dlobd clean`: lists or removes dlobd's files on this machine."""

from contextlib import nullcontext
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out


def clean(
    out: Out = RUNS,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the caches.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="With --yes: also remove run bundles and self-tests.")] = False,
) -> None:
    """List the files that dlobd keeps on this machine; with --yes, remove them."""
    from dlobd.run import clean as cleaning

    entries = cleaning.kept(out)
    if not entries:
        print("dlobd keeps no files on this machine")
    chosen = [entry for entry in entries if yes and (runs or entry.name not in (cleaning.RUNS, cleaning.SELFTEST))]
    with cleaning.unused(chosen) if chosen else nullcontext():
        for entry in entries:
            if entry in chosen:
                cleaning.remove(entry)
            path = entry.paths[0] if entry.name != cleaning.RUNS else out
            done = "removed " if entry in chosen else ""
            print(f"{done}{entry.size_bytes / 1e6:10.1f} MB  {entry.name:8} {path}  ({entry.title})")
