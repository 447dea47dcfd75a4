"""Cost of one span on this machine, measured in a fraction of a second and kept as evidence of a run.

It is CPU time, so that other processes on the cores do not change it. It includes the writing, but not the wait for a
disk. Between two steps, other data replaces the core's caches, as in a trainer, where a span costs twice as much as in
a loop without other work.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.tracing import NoSpan
from dlobd.tracing.recorder import OpenSpan
from dlobd.tracing.summed_steps import LeftOut

SPANS = 100
REPEATS = 7

OTHER_BYTES = 16 << 20
"""More than a core's second-level cache: the cost of a span then equals the cost in the self-test's step loop."""

Span = Callable[..., AbstractContextManager[OpenSpan | LeftOut | NoSpan]]


def evidence(directory: Path) -> dict[str, str | int | None]:
    """Return the state of recording and the cost of a span, measured with a temporary file in `directory`."""
    if tracing.switched_off():
        return {"recording": "off", "span_ns": None}
    costs = measured(directory, SPANS, REPEATS)["on"]
    ns = {"span_ns": round(statistics.median(costs)), "lowest_ns": round(costs[0]), "highest_ns": round(costs[-1])}
    return {"recording": "on", **ns, "spans": SPANS, "repeats": REPEATS}


def measured(directory: Path, spans: int, repeats: int) -> dict[str, list[float]]:
    """Return the CPU times per span in nanoseconds, sorted, with a recorder (`on`) and without (`off`)."""
    with tempfile.TemporaryDirectory(prefix="span-cost-", dir=directory) as scratch:
        recorder = tracing.Recorder(Path(scratch), "benchmark", threaded=False)
        ways: dict[str, tuple[Span | None, Callable[[], None]]] = {
            "off": (tracing.span, tracing.flush),
            "on": (recorder.span, recorder.flush),
            "empty": (None, tracing.flush),
        }
        costs: dict[str, list[float]] = {name: [] for name in ways}
        other = b"\1" * OTHER_BYTES  # zeros could share one page of memory
        with recorder.span(kinds.TRAINER):  # nested spans are written together, as in a trainer
            for _ in range(repeats + 1):
                for name, (span, flush) in ways.items():
                    costs[name].append(_loop_ns(span, flush, spans, other))
        recorder.close()
    empty_ns = statistics.median(costs.pop("empty")[1:])
    # without the first repeat, which opens the file and warms caches
    return {name: sorted(ns - empty_ns for ns in repeats_ns[1:]) for name, repeats_ns in costs.items()}


def _loop_ns(span: Span | None, flush: Callable[[], None], spans: int, other: bytes) -> float:
    """Record and write the spans of a trainer's step loop. Reading `other` replaces the core's caches."""
    spent_ns = 0
    for step in range(spans // 2):
        _ = 0 in other
        start_ns = time.thread_time_ns()
        if span is not None:
            with span(kinds.GET) as waiting:
                waiting.note(bytes=step)
            with span(kinds.STEP, {"rendezvous": kinds.STEP_RENDEZVOUS, "call": step}):
                pass
        spent_ns += time.thread_time_ns() - start_ns
    _ = 0 in other
    start_ns = time.thread_time_ns()
    flush()
    return (spent_ns + time.thread_time_ns() - start_ns) / spans
