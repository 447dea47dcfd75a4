"""The history of runs: one row per bundle, with a few members of its run.json, and their table.

A directory may have thousands of bundles, so run.json is read without its schema; a damaged one has a row as well.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from rich.console import Console
from rich.text import Text

from dlobd.bundle import reading
from dlobd.bundle.store import Bundle
from dlobd.layers import title
from dlobd.report import text
from dlobd.report.repeats import plain_table

UNREADABLE = "unreadable"
"""Status of a bundle without a readable run.json."""

SORTS = {"date": "run_id", "experiment": "experiment", "wall": "wall_ns", "training": "training_ns", "layer": "layer"}
"""Order of the history -> member of a row. Dates and times are in descending order, names in ascending order."""

HEADS = ("date (UTC)", "experiment", "status", "largest layer", "wall, s", "training, s")


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the history. None: unknown. `layer` is the layer with the most wall time."""

    run_id: str
    started_at: str
    experiment: str
    status: str
    wall_ns: int | None
    training_ns: int | None
    layer: str | None
    layer_ns: int | None
    path: str

    @property
    def figures(self) -> tuple[str | None, ...]:
        """Texts for the date in UTC, experiment, status, largest layer, wall time and training in seconds."""
        share = f" {text.percentage((self.layer_ns or 0) / self.wall_ns)}" if self.wall_ns else ""
        largest = f"{title(self.layer)}{share}" if self.layer else None
        seconds = (None if ns is None else f"{ns / 1e9:.1f}" for ns in (self.wall_ns, self.training_ns))
        return self.started_at[:16].replace("T", " "), self.experiment, self.status, largest, *seconds


class _Part(TypedDict):
    ns: int
    layer: NotRequired[str]
    phase: NotRequired[str]


class _Run(TypedDict):
    status: str
    wall_ns: int | None
    layers: list[_Part]
    phases: NotRequired[list[_Part]]


def row(bundle: Bundle) -> Row:
    """Read the row of a bundle."""
    found = reading.read_json(bundle.path / "run.json", _Run)
    run: _Run = found if isinstance(found, dict) else {"status": UNREADABLE, "wall_ns": None, "layers": []}
    largest = max(run["layers"], key=lambda layer: layer["ns"], default=None)
    return Row(
        run_id=bundle.run_id,
        started_at=re.sub(r"(....)(..)(..T..)(..)(..Z).*", r"\1-\2-\3:\4:\5", bundle.run_id),
        experiment=bundle.path.parent.name,
        status=run["status"],
        wall_ns=run["wall_ns"],
        training_ns=next((one["ns"] for one in run.get("phases", ()) if one.get("phase") == "training"), None),
        layer=largest and largest.get("layer"),
        layer_ns=largest and largest["ns"],
        path=str(bundle.path),
    )


def rows(bundles: Sequence[Bundle], statuses: Iterable[str] = (), sort: str = "date", limit: int = 0) -> list[Row]:
    """Return the rows with one of `statuses` (all without), in an order of `SORTS`; at most `limit`, 0 for all. In the
    order of the date, only as many bundles are read as needed."""
    wanted = {*statuses}
    found: list[Row] = []
    for one in map(row, reversed(bundles)):
        if not wanted or one.status in wanted:
            found.append(one)
        if sort == "date" and len(found) == limit:
            return found
    times = sort in ("date", "wall", "training")
    known = [one for one in found if getattr(one, SORTS[sort]) is not None]
    known.sort(key=lambda one: getattr(one, SORTS[sort]), reverse=times)
    return [*known, *(one for one in found if getattr(one, SORTS[sort]) is None)][: limit or None]


def show(found: Sequence[Row], console: Console) -> None:
    """Print the table of runs."""
    table = plain_table("run", *HEADS, texts=5)
    for one in found:
        table.add_row(*(Text(figure or "-") for figure in (one.run_id, *one.figures)))
    console.print(table)
