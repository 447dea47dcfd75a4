"""`dlobd clean`: lists or removes dlobd's files on this machine."""

from __future__ import annotations

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
    for entry in entries:
        removed = yes and (runs or entry.name not in ("runs", cleaning.SELFTEST))
        if removed:
            cleaning.remove(entry)
        path = entry.paths[0] if entry.name != "runs" else out
        print(
            f"{'removed ' if removed else ''}{entry.size_bytes / 1e6:10.1f} MB  {entry.name:8} {path}  ({entry.title})"
        )
