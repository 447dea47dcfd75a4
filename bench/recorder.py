"""What recording adds to a step of the real trainer, by `dlobd.selftest.step_loop`, several times."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.tables import Table, compared, number
from dlobd.selftest import step_loop
from dlobd.selftest.step_loop import BLOCK_STEPS, Loop


def measure(seed: int) -> dict[str, Any] | None:
    """A `Loop` as JSON, or None if it did not end well."""
    loop = step_loop.measure(seed)
    return asdict(loop) if loop else None


def table(measured: list[dict[str, Any] | None]) -> Table:
    """`measured` is what `measure` returned, each time."""
    loops = [one for one in measured if one]
    all_ns = {way: [ns for one in loops for ns in one[f"{way}_ns"]] for way in ("off", "on")}
    added = Loop(tuple(all_ns["off"]), tuple(all_ns["on"])).added_ns()
    low, middle, high = (number(ns / 1e3 if ns is not None else None) for ns in (added.low, added.median, added.high))
    says = (
        f"Blocks of {BLOCK_STEPS} steps of one rank with recording and without, in turn in one process; input lies in "
        "memory, three spans a step. Microseconds a step. The median of the differences within pairs is "
        f"{middle} us, 95 % interval {low} to {high} us."
    )
    us: dict[str, list[float | None]] = {way: [ns / 1e3 for ns in found] for way, found in all_ns.items()}
    return compared("Step loop with and without the recorder", says, "us", us, "off", saved=False)
