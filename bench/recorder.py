"""What recording adds to a step of the real trainer, by `dlobd.selftest.step_loop`, several times."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.tables import Table, compared, number
from dlobd.selftest import step_loop
from dlobd.selftest.step_loop import BLOCK_STEPS, Loop
from dlobd.spread import median


def measure(seed: int) -> dict[str, Any] | None:
    """A `Loop` as JSON, or None if it did not end well."""
    loop = step_loop.measure(seed)
    return asdict(loop) if loop else None


def table(measured: list[dict[str, Any] | None]) -> Table:
    """`measured` is what `measure` returned, each time."""
    loops = [Loop(**one) for one in measured if one]
    us = {way: [ns / 1e3 for loop in loops for ns in getattr(loop, f"{way}_ns")] for way in ("off", "on")}
    added = median([on - off for off, on in zip(us["off"], us["on"], strict=True)])
    says = (
        f"Blocks of {BLOCK_STEPS} steps of one rank with recording and without, in turn in one process; input lies in "
        "memory, three spans a step. Microseconds a step. The median of the differences within pairs is "
        f"{number(added.median)} us, 95 % interval {number(added.low)} to {number(added.high)} us."
    )
    values: dict[str, list[float | None]] = {way: list(found) for way, found in us.items()}
    return compared("Step loop with and without the recorder", says, "us", values, "off", saved=False)
