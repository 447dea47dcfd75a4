"""Durations of steps over time, with their parts: input wait, compute, channel, other.

Time between two steps is input wait, or other work such as a checkpoint. Many steps are grouped into bins of equal size
with minimum, median and maximum duration; the parts of a bin are exact sums.
"""

from collections.abc import Iterator

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import Spans, Trace
from dlobd.columns import NONE, Covered, Flags, Ints
from dlobd.layers import CHANNEL
from dlobd.record.run import Run

MOST_BINS, MOST_RANKS = 240, 8
"""Maximum bins per rank, and drawn ranks."""

INPUT = (kinds.NEXT_BATCH, kinds.INPUT_WAIT, kinds.GET, kinds.AWAIT_BLOCK, kinds.DECODE, kinds.AUGMENT)

PARTS = ("input wait", "compute", "channel", "other")


def steps(trace: Trace, run: Run) -> dict[str, object]:
    """Build the bins [from step, until step, start, end, minimum, median, maximum, parts...] of the first ranks. Times
    count from the window's start. `channel_inside`: True if compute contains the exchange, without a measured
    boundary. `left_out`: number of other ranks."""
    spans = trace.spans
    # only the rank's own lanes: reader lanes run in parallel and are not waits
    own = np.isin(spans.lane, [spans.lanes.index(lane) for lane in stepping_lanes(spans)])
    nodes = [(origin.process.role, origin.process.index) for origin in spans.origins]
    taken = own & spans.is_step
    stepping = sorted({nodes[origin] for origin in np.unique(spans.origin[taken]).tolist()})
    ranks = []
    for role, index in stepping[:MOST_RANKS]:
        here = own & np.array([node == (role, index) for node in nodes], np.bool_)[spans.origin]
        rows = np.flatnonzero(here & taken)
        rows = rows[np.argsort(spans.start_ns[rows], kind="stable")]
        start_ns, end_ns = (column[rows] - trace.start_ns for column in (spans.start_ns, spans.end_ns))
        bins = list(_bins(start_ns, end_ns, _parts(spans, rows, here)))
        ranks.append({"rank": f"{role} {index}", "steps": len(rows), "bins": bins})
    inside = any(row.layer == "channel" and row.inside == "tensorflow" for row in run.not_measured)
    return {"ranks": ranks, "parts": PARTS, "channel_inside": inside, "left_out": len(stepping) - len(ranks)}


def stepping_lanes(spans: Spans) -> dict[str, str]:
    """Return the lanes with steps in order, with the names of their ranks."""
    stepping = (spans.call != NONE) & spans.of_kinds(lambda kind: kind in (kinds.STEP, kinds.FIRST_STEP))
    origins = [spans.origins[origin] for origin in np.unique(spans.origin[stepping]).tolist()]
    return dict(sorted((one.lane, f"{one.process.role} {one.process.index}") for one in origins))


def _parts(spans: Spans, steps_: Ints, own: Flags) -> Ints:
    """Return the parts of steps in the order of `PARTS`; shape (steps, 4)."""
    inputs = own & spans.of_kinds(lambda kind: kind in INPUT)
    channel = own & spans.of_kinds(lambda kind: kind.layer == CHANNEL)
    in_inputs, in_channel = (Covered(spans.start_ns[some], spans.end_ns[some]) for some in (inputs, channel))
    start_ns, end_ns = spans.start_ns[steps_], spans.end_ns[steps_]
    between_ns = np.maximum(0, start_ns - np.append(start_ns[:1], end_ns[:-1]))
    waited_ns = in_inputs(start_ns) - in_inputs(start_ns - between_ns)
    sent_ns = in_channel(end_ns) - in_channel(start_ns)
    return np.stack([waited_ns, end_ns - start_ns - sent_ns, sent_ns, between_ns - waited_ns], axis=1)


def _bins(start_ns: Ints, end_ns: Ints, parts: Ints) -> Iterator[list[float]]:
    size = max(1, -(-len(start_ns) // MOST_BINS))
    for first in range(0, len(start_ns), size):
        some = slice(first, first + size)
        lengths = end_ns[some] - start_ns[some]
        last = first + len(lengths) - 1
        spread = int(lengths.min()), int(np.median(lengths)), int(lengths.max())
        yield [first, last, int(start_ns[first]), int(end_ns[last]), *spread, *parts[some].sum(axis=0).tolist()]
