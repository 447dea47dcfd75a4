"""What one span costs: nanoseconds with the recorder on and off, interleaved, median of several repeats.

    python analysis/span_cost.py [--spans N] [--repeats N]

On: a begin and an end line with one attribute, encoded and written to a file. Off: what instrumented code costs where
nobody measures. An empty loop's share is taken off both.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dlobd import trace


def loop_ns(span: Callable[..., AbstractContextManager[Any]] | None, flush: Callable[[], None], spans: int) -> float:
    """Nanoseconds a turn of a loop that opens and closes a span, or does nothing; with its part of the writing."""
    start_ns = time.perf_counter_ns()
    if span is None:
        for _ in range(spans):
            pass
    else:
        for step in range(spans):
            with span("tensorflow", "step", step=step):
                pass
    flush()
    return (time.perf_counter_ns() - start_ns) / spans


def main() -> None:
    """Prints one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        recorder = trace.Recorder(Path(directory), "benchmark")
        ways = {"off": (trace.span, trace.flush), "on": (recorder.span, recorder.flush), "loop": (None, trace.flush)}
        found: dict[str, list[float]] = {name: [] for name in ways}
        with recorder.span("tensorflow", "trainer"):  # as in a trainer: spans inside a span are written together
            for _ in range(asked.repeats):
                for name, (span, flush) in ways.items():
                    found[name].append(loop_ns(span, flush, asked.spans))
        recorder.close()
    empty_ns = statistics.median(found["loop"])
    for name in ("on", "off"):
        each = sorted(ns - empty_ns for ns in found[name])
        print(f"{name:<4}{statistics.median(each):8.0f} ns a span   (lowest {each[0]:.0f}, highest {each[-1]:.0f})")


if __name__ == "__main__":
    main()
