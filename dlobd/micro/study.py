"""Studies: launches of several routes, interleaved, so that a slow minute of the machine meets all routes.

Each round starts every route once. The order of the routes rotates from round to round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event

import numpy as np

from dlobd.micro.launch import Plan, Site, launch
from dlobd.micro.results import Results

COPY_BYTES = 64 << 20
COPIES = 5


def run(
    results: Results,
    plans: Sequence[tuple[Plan, Sequence[Site]]],
    launches: int,
    progress: Callable[[str], None],
    stopped: Event | None = None,
    first: int = 0,
) -> Results:
    """Run all plans `launches` times, and return the results with these launches added.

    Args:
        plans: plans with the sites of their processes.
        stopped: ends the study after the launch in progress, which is marked as failed.
        first: number of the first launch, for a study that goes on.
    """
    stopped = stopped or Event()
    for number in range(first, first + launches):
        shift = number % len(plans)
        for plan, sites in [*plans[shift:], *plans[:shift]]:
            if stopped.is_set():
                return results
            progress(f"launch {number + 1} of {first + launches}: {plan.route.label}")
            done = launch(plan, sites, number, stopped)
            results = replace(results, launches=(*results.launches, done))
    return results


def memcpy_bytes_per_s() -> float:
    """Measure the bandwidth of a copy in memory: the fastest of several copies of 64 MiB."""
    source, into = np.ones(COPY_BYTES, np.uint8), np.empty(COPY_BYTES, np.uint8)
    times_s = []
    for _ in range(COPIES):
        start_s = time.perf_counter()
        np.copyto(into, source)
        times_s.append(time.perf_counter() - start_s)
    return COPY_BYTES / min(times_s)
