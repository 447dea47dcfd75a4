"""Figures of a run for comparisons and studies; None if not measured."""

from collections.abc import Callable

from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run

PARTS = (*LAYERS, UNATTRIBUTED)
"""Layers and unattributed time, in the order of reports."""

WALL = "wall"

Value = Callable[[Run], float | None]


def wall_s(run: Run) -> float | None:
    """Return the wall time in seconds."""
    return run.wall_ns / 1e9 if run.wall_ns else None


def layer_ns(run: Run, layer: str) -> int | None:
    """Return the wall time of a layer, or unattributed time, in nanoseconds."""
    if layer == UNATTRIBUTED:
        return run.unattributed_ns
    layers_ns = {row.layer: row.ns for row in run.layers}
    absent = layer not in layers_ns and layer in {row.layer for row in run.not_measured}
    return None if absent or not layers_ns else layers_ns.get(layer, 0)


def layer_s(run: Run, layer: str) -> float | None:
    """Return `layer_ns` in seconds."""
    ns = layer_ns(run, layer)
    return None if ns is None else ns / 1e9


def layer_or_zero_s(run: Run, layer: str) -> float | None:
    """Return `layer_s`, or 0 for a layer without a part in the run, such as Spark in a native run."""
    took_no_part = {row.layer for row in run.not_measured if not row.inside}
    return 0.0 if layer in took_no_part else layer_s(run, layer)


def throughput(run: Run) -> float | None:
    """Return samples per second of all ranks after the ten warm-up steps; None for shorter trainings."""
    return run.throughput.mean if run.throughput else None


def metric(name: str, unit: float = 1) -> Value:
    """Build a function that reads a metric of a run and divides it by `unit`."""

    def value(run: Run) -> float | None:
        number: float | None = getattr(run.metrics, name)
        return None if number is None else number / unit

    return value
