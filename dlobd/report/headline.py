"""Headline of a run: one sentence with the result, identical in all reports."""

from __future__ import annotations

from collections.abc import Sequence

from dlobd.layers import UNATTRIBUTED, title
from dlobd.record.run import Run

TENTH_NS = 10**8
"""Resolution of the headline's seconds; repeated runs differ by more."""

MINOR_SHARE = 0.02
"""The headline sums layers with a smaller fraction of the wall time as `other`."""


def headline(run: Run) -> str:
    """Format the run's result: "The run took 34.0 s: Spark 18.4 s (54 %), TensorFlow 8.6 s, other 0.5 s; ..."."""
    if run.status == "running":
        by = f", pid {run.process.pid} on {run.process.domain.partition('/')[0]}" if run.process else ""
        return f"The run has not ended{by}: {run.reason or 'its breakdown follows at its end'}."
    if run.status != "ok":
        return f"The run is {run.status}: {run.reason or 'the reason is unknown'}."
    if not run.wall_ns:
        return "Nothing was measured."
    total, parts = tenths_of_parts(run)
    layers = sorted(run.layers, key=lambda layer: -layer.ns)
    large = [row for row in layers if row.ns >= MINOR_SHARE * run.wall_ns]
    words = [f"{title(row.layer)} {seconds(parts[row.layer])} s" for row in large if parts[row.layer]]
    if words:
        words[0] += f" ({100 * layers[0].ns / run.wall_ns:.0f} %)"
    other = sum(parts[row.layer] for row in layers[len(large) :])
    rest = (("other", other), (UNATTRIBUTED, parts[UNATTRIBUTED]))
    words += [f"{name} {seconds(part)} s" for name, part in rest if part]
    training_ns = run.metrics.training_ns
    training = f"; training took {training_ns / 1e9:.1f} s" if training_ns is not None else ""
    return f"The run took {seconds(total)} s: {', '.join(words)}{training}."


def tenths(wall_ns: int, parts_ns: Sequence[int]) -> tuple[int, list[int]]:
    """Round a wall time and its parts to tenths of a second, so that the rounded parts sum to the rounded wall time.
    Hamilton's method: round each part down, then give the missing tenths to the parts with the largest remainders."""
    total = (wall_ns + TENTH_NS // 2) // TENTH_NS
    rounded = [ns // TENTH_NS for ns in parts_ns]
    by_remainder = sorted(range(len(parts_ns)), key=lambda i: -(parts_ns[i] % TENTH_NS))
    for i in by_remainder[: max(total - sum(rounded), 0)]:
        rounded[i] += 1
    return total, rounded


def tenths_of_parts(run: Run) -> tuple[int, dict[str, int]]:
    """Round the wall time, its layers and the unattributed time to tenths of a second that sum up."""
    parts_ns = {row.layer: row.ns for row in run.layers} | {UNATTRIBUTED: run.unattributed_ns or 0}
    total, parts = tenths(run.wall_ns or 0, list(parts_ns.values()))
    return total, dict(zip(parts_ns, parts, strict=True))


def seconds(tenths: int) -> str:
    """Format tenths of a second as seconds, without the unit."""
    return f"{tenths // 10}.{tenths % 10}"
