"""The one sentence that states a run's result, the same in every report."""

from __future__ import annotations

from collections.abc import Sequence

from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run

TENTH_NS = 10**8
"""The sentence has tenths of a second: repeated runs differ by more."""

MINOR_SHARE = 0.02
"""Layers with a smaller share of the wall are summed as `other`."""


def headline(run: Run) -> str:
    """Return the run's result: "The run took 34.0 s: Spark 18.4 s (54 %), TensorFlow 8.6 s, other 0.5 s; ..."."""
    if run.status != "ok":
        return f"The run is {run.status}: {run.reason or 'the reason is unknown'}."
    if not run.wall_ns:
        return "Nothing was measured."
    total, parts = tenths(run.wall_ns, [ns for _, ns in _parts(run)])
    words = [f"{name} {_seconds(part)}" for (name, _), part in zip(_parts(run), parts, strict=True) if part]
    if run.layers and words:
        largest_ns = max(layer.ns for layer in run.layers)
        words[0] += f" ({100 * largest_ns / run.wall_ns:.0f} %)"
    training_ns = run.metrics.training_ns
    training = f"; training took {training_ns / 1e9:.1f} s" if training_ns is not None else ""
    return f"The run took {_seconds(total)}: {', '.join(words)}{training}."


def tenths(wall_ns: int, parts_ns: Sequence[int]) -> tuple[int, list[int]]:
    """Round a wall and its parts to tenths of a second, such that the rounded parts sum to the rounded wall.

    Uses the largest remainder method (Hamilton's): each part is rounded down, and the missing tenths go to the parts
    with the largest remainders.
    """
    total = (wall_ns + TENTH_NS // 2) // TENTH_NS
    rounded = [ns // TENTH_NS for ns in parts_ns]
    by_remainder = sorted(range(len(parts_ns)), key=lambda i: -(parts_ns[i] % TENTH_NS))
    for i in by_remainder[: max(total - sum(rounded), 0)]:
        rounded[i] += 1
    return total, rounded


def _parts(run: Run) -> list[tuple[str, int]]:
    """Return (name, ns) of large layers, of the sum of the small ones, and of the unattributed rest."""
    wall_ns = run.wall_ns or 0
    layers = sorted(run.layers, key=lambda layer: -layer.ns)
    large = [layer for layer in layers if layer.ns >= MINOR_SHARE * wall_ns]
    named = [(LAYERS[layer.layer].title if layer.layer in LAYERS else layer.layer, layer.ns) for layer in large]
    other_ns = sum(layer.ns for layer in layers[len(large) :])
    rest = [("other", other_ns), (UNATTRIBUTED, run.unattributed_ns or 0)]
    return named + [(name, ns) for name, ns in rest if ns]


def _seconds(value: int) -> str:
    return f"{value // 10}.{value % 10} s"
