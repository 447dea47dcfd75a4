"""`dlobd list`: lists the members of registries, and the settings."""

from typing import Annotated

import typer

from dlobd.cli.options import Json
from dlobd.cli.printing import print_json
from dlobd.errors import UsageError


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="Only this kind: experiments, sweeps, models, datasets, settings, ...")
    ] = None,
    as_json: Json = False,
) -> None:
    """List experiments, sweeps, models, data sets, launchers, other choices, and all settings.

    An unavailable choice is listed with the reason.
    """
    from dlobd.axes import REGISTRIES
    from dlobd.experiment.files import titles
    from dlobd.experiment.settings import SETTINGS
    from dlobd.registry import unknown

    rows: dict[str, list[tuple[str, str, str | None]]] = {
        f"{kind}s": [(name, title, None) for name, title in titles(kind)] for kind in ("experiment", "sweep")
    }
    rows |= {name: [(row.name, row.title, row.reason()) for row in registry] for name, registry in REGISTRIES.items()}
    rows["settings"] = [(name, f"{one.about.text} ({one.values})", None) for name, one in SETTINGS.items()]
    if kind is not None:
        if kind not in rows:
            raise UsageError(unknown("list", kind, rows), "dlobd list")
        rows = {kind: rows[kind]}
    if as_json:
        keys = ("name", "title", "unavailable")
        print_json({name: [dict(zip(keys, row, strict=True)) for row in members] for name, members in rows.items()})
        return
    width = max(len(row[0]) for members in rows.values() for row in members)
    for name, members in rows.items():
        print(name)
        for member, title, reason in members:
            print(f"  {member:{width}}  {title}" + (f"  [not available: {reason}]" if reason else ""))
