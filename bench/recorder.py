"""What recording adds to a step of the real trainer, by `dlobd.selftest.step_loop`, several times."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from bench.tables import Table, cells
from dlobd.compare.median import spread
from dlobd.report import text
from dlobd.selftest import step_loop
from dlobd.selftest.step_loop import BLOCK_STEPS, Loop

TITLE = "Step loop with and without the recorder"


def measure(seed: int) -> dict[str, Any] | None:
    """A `Loop` as JSON, or None if it did not end well."""
    loop = step_loop.measure(seed)
    return asdict(loop) if loop else None


def table(measured: list[dict[str, Any] | None]) -> Table:
    """`measured` is what `measure` returned, each time: one process."""
    loops = [Loop(tuple(one["off_ns"]), tuple(one["on_ns"])) for one in measured if one]
    added = step_loop.added_ns(loops)
    us: dict[str, list[float | None]] = {
        "off": [loop.step_ns / 1e3 for loop in loops],
        "on": [statistics.median(loop.on_ns) / 1e3 for loop in loops],
        "added": [loop.added_ns / 1e3 for loop in loops],
    }
    says = (
        f"Blocks of {BLOCK_STEPS} steps of one rank with recording and without, in turn in one process; input lies in "
        "memory, three spans a step. Microseconds a step. A process is one value: the medians of its blocks, and of "
        f"the differences within its pairs. Added: {text.estimate(added and added.times(1e-3))} us."
    )
    rows = [[label, *cells(spread(values))] for label, values in us.items()]
    return Table(TITLE, says, ["", "processes", "median, us", "IQR", "min-max"], rows, {"processes": [*measured]})
