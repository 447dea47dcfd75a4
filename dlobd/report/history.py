"""The history of runs: one row per bundle, with a few members of its run.json, and their table.

A directory may have thousands of bundles, so run.json is read without its schema; a damaged one has a row as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rich.console import Console
from rich.text import Text

from dlobd.bundle import reading
from dlobd.bundle.store import Bundle
from dlobd.layers import title
from dlobd.report import text
from dlobd.report.repeats import plain_table

UNREADABLE = "unreadable"
"""Status of a bundle without a readable run.json."""


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


SORTS: Mapping[str, Callable[[Row], Any]] = {
    "date": attrgetter("run_id"),
    "experiment": attrgetter("experiment"),
    "wall": lambda row: row.wall_ns or 0,
    "training": lambda row: row.training_ns or 0,
    "layer": lambda row: (row.layer or "", row.layer_ns or 0),
    "status": attrgetter("status"),
}
"""Orders of the history, by their names. Dates and times are in descending order, names in ascending order."""

_NAMES = ("experiment", "layer", "status")


def row(bundle: Bundle) -> Row:
    """Read the row of a bundle."""
    run = reading.read_json(bundle.path / "run.json", dict[str, Any])
    known = run if isinstance(run, dict) else {}
    layers = known.get("layers")
    largest = max(layers, key=_ns, default=None) if isinstance(layers, list) else None
    metrics = known.get("metrics")
    stamp = bundle.run_id
    return Row(
        run_id=stamp,
        started_at=f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[9:11]}:{stamp[11:13]}:{stamp[13:15]}Z",
        experiment=bundle.path.parent.name,
        status=str(known.get("status", UNREADABLE)),
        wall_ns=_integer(known.get("wall_ns")),
        training_ns=_integer(metrics.get("training_ns")) if isinstance(metrics, dict) else None,
        layer=str(largest["layer"]) if largest and _ns(largest) else None,
        layer_ns=_ns(largest) or None,
        path=str(bundle.path),
    )


def rows(bundles: Sequence[Bundle], statuses: Iterable[str] = (), sort: str = "date", limit: int = 0) -> list[Row]:
    """Return the rows with one of `statuses` (all without), in an order of `SORTS`; at most `limit`, 0 for all. In the
    order of the date, only as many bundles are read as needed."""
    wanted = set(statuses)
    found: list[Row] = []
    for bundle in reversed(bundles):
        if limit and sort == "date" and len(found) == limit:
            break
        one = row(bundle)
        if not wanted or one.status in wanted:
            found.append(one)
    found.sort(key=SORTS[sort], reverse=sort not in _NAMES)
    return found[: limit or None]


def show(found: Sequence[Row], console: Console) -> None:
    """Print the table of runs; dates are in UTC."""
    heads = "run", "date (UTC)", "experiment", "status", "largest layer", "wall, s", "training, s"
    table = plain_table(*heads, texts=5)
    for one in found:
        largest = f"{title(one.layer)} {_share(one)}" if one.layer else "-"
        texts = one.run_id, one.started_at[:16].replace("T", " "), one.experiment, one.status, largest
        table.add_row(*map(Text, texts), _seconds(one.wall_ns), _seconds(one.training_ns))
    console.print(table)


def _share(one: Row) -> str:
    return text.percentage((one.layer_ns or 0) / one.wall_ns) if one.wall_ns else ""


def _seconds(ns: int | None) -> str:
    return "-" if ns is None else f"{ns / 1e9:.1f}"


def _integer(value: object) -> int | None:
    return value if reading.is_int(value) else None


def _ns(layer: object) -> int:
    ns = layer.get("ns") if isinstance(layer, dict) else None
    return ns if reading.is_int(ns) else 0
