"""What the repeats of a series show together: per point the wall's median and spread, and its layers' medians.

Computed from the runs' records (run.json as dictionaries) alone. Only runs with status ok count; the others are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from dlobd.attribution.statistics import Spread, spread
from dlobd.layers import LAYERS, UNATTRIBUTED

Records = Mapping[str, Sequence[dict[str, Any]]]
"""Label of a point to the records of its runs that have ended."""


def wall_s(record: Mapping[str, Any]) -> float | None:
    """Seconds of the run's window."""
    return record["wall_ns"] / 1e9 if record["wall_ns"] else None


def layer_s(record: Mapping[str, Any], layer: str) -> float | None:
    """Seconds that a layer has of the wall; None where it was not measured."""
    if layer == UNATTRIBUTED:
        return record["unattributed_ns"] / 1e9 if record["unattributed_ns"] is not None else None
    given: dict[str, int] = {row["layer"]: row["ns"] for row in record["layers"]}
    absent = layer not in given and layer in {row["layer"] for row in record["not_measured"]}
    return None if absent or not given else given.get(layer, 0) / 1e9


def first_step_s(record: Mapping[str, Any]) -> float | None:
    """Seconds from the window's start until the first step was done."""
    return _since(record, record["window"]["start_ns"], "startup", "first step done") if record["window"] else None


def steady_rate(record: Mapping[str, Any]) -> float | None:
    """Samples of all ranks a second, from the end of the first step, which is traced and compiled, to the last's."""
    begin, end = _at(record, "startup", "first step done"), _at(record, "teardown", "last step done")
    steps, samples = record["metrics"].get("steps"), record["metrics"].get("train_samples")
    if begin is None or end is None or not steps or not samples:
        return None
    rate: float = samples * (steps - 1) / steps / (end - begin) * 1e9
    return rate


def teardown_s(record: Mapping[str, Any]) -> float | None:
    """Seconds from the last step to the window's end: save, read back, evaluate, stop, exit."""
    last = _at(record, "teardown", "last step done")
    return (record["window"]["end_ns"] - last) / 1e9 if last is not None else None


def metric(name: str, unit: float = 1) -> Callable[[Mapping[str, Any]], float | None]:
    """The value of one of the record's metrics, in `unit`s."""

    def value(record: Mapping[str, Any]) -> float | None:
        found = record["metrics"].get(name)
        return found / unit if found is not None else None

    return value


def over_repeats(records: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]) -> Spread:
    """The spread of a value over the runs that are ok."""
    return spread(value(record) for record in records if record["status"] == "ok")


def left_out(records: Sequence[Mapping[str, Any]]) -> str:
    """How many runs are not ok and so count nowhere, by status; empty if all are."""
    counts = Counter(record["status"] for record in records if record["status"] != "ok")
    each = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{sum(counts.values())} of {len(records)} runs, not ok: {each}" if counts else ""


def table(points: Records, console: Console) -> None:
    """Prints the walls with their spread, the layers' medians, and what ended otherwise than ok."""
    console.print("Wall, seconds")
    walls = _table("point", "ok", "median", "min", "max", "IQR")
    for label, records in points.items():
        found = over_repeats(records, wall_s)
        iqr = found.q3 - found.q1 if found.q3 is not None and found.q1 is not None else None
        figures = (found.median, found.low, found.high, iqr)
        walls.add_row(label, f"{found.n}/{len(records)}", *map(_figure, figures))
    console.print(walls)
    console.print("\nLayers, median seconds (medians need not add up)")
    layers = _table("layer", *points)
    for layer in (*LAYERS, UNATTRIBUTED):
        medians = [over_repeats(records, partial(layer_s, layer=layer)).median for records in points.values()]
        if any(medians):
            layers.add_row(layer, *map(_figure, medians))
    console.print(layers)
    if words := left_out([record for records in points.values() for record in records]):
        console.print(f"Left out of all figures: {words}", soft_wrap=True)
    for label, records in points.items():
        for record in records:
            if record["status"] != "ok":
                console.print(
                    f"{label}: run {record['run_id']} is {record['status']}: {record['cause']}", soft_wrap=True
                )


def _since(record: Mapping[str, Any], start_ns: int, anatomy: str, event: str) -> float | None:
    at_ns = _at(record, anatomy, event)
    return (at_ns - start_ns) / 1e9 if at_ns is not None else None


def _at(record: Mapping[str, Any], anatomy: str, event: str) -> int | None:
    # of an event that every rank has, the last one: then all of them have come so far
    return max((row["at_ns"] for row in record[anatomy] if row["event"] == event), default=None)


def _table(*columns: str) -> Table:
    made = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left")
    return made


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
