"""What one span costs on this machine, now: measured in a fraction of a second, kept as evidence of a run.

Of CPU time, so that it is that of the work, also while others have the cores. The writing is in it, waiting for a disk
is not. Between two turns other data goes through the core's caches, as in a trainer: there the same spans cost twice as
much as in a loop that does nothing else.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing

SPANS = 100
REPEATS = 7

OTHER_BYTES = 16 << 20
"""More than the second level cache of a core holds, and a good part of the third level, which others use too. With it
a span costs what the self-test's step loop finds; with 4 MiB a third less."""

Span = Callable[..., AbstractContextManager[Any]]


def evidence(directory: Path) -> dict[str, Any]:
    """What a bundle keeps: whether the run records, and what a span costs where its file lies.

    Args:
        directory: takes a span file while this measures; nothing is left in it.
    """
    if tracing.switched_off():
        return {"recording": "off", "span_ns": None}
    found = measured(directory, SPANS, REPEATS)["on"]
    ns = {"span_ns": round(statistics.median(found)), "lowest_ns": round(found[0]), "highest_ns": round(found[-1])}
    return {"recording": "on", **ns, "spans": SPANS, "repeats": REPEATS}


def measured(directory: Path, spans: int, repeats: int) -> dict[str, list[float]]:
    """Nanoseconds of CPU time a span, sorted, one value a repeat: `on` with its part of the encoding and writing, `off`
    where nothing is recorded, as in this process. Interleaved; what a loop without spans takes is off both."""
    with tempfile.TemporaryDirectory(prefix="span-cost-", dir=directory) as own:
        recorder = tracing.Recorder(Path(own), "benchmark", threaded=False)
        ways: dict[str, tuple[Span | None, Callable[[], None]]] = {
            "off": (tracing.span, tracing.flush),
            "on": (recorder.span, recorder.flush),
            "empty": (None, tracing.flush),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        other = b"\1" * OTHER_BYTES  # zeros could be one page of memory, however many there are
        with recorder.span(kinds.TRAINER):  # as in a trainer: spans inside a span are written together
            for _ in range(repeats + 1):
                for name, (span, flush) in ways.items():
                    found[name].append(_loop_ns(span, flush, spans, other))
        recorder.close()
    empty_ns = statistics.median(found.pop("empty")[1:])
    # without the first of each, which opens the file and warms caches
    return {name: sorted(ns - empty_ns for ns in each[1:]) for name, each in found.items()}


def _loop_ns(span: Span | None, flush: Callable[[], None], spans: int, other: bytes) -> float:
    """Turns of what the step loop of a trainer records, a wait with a size and a rendezvous; then they are written.
    Before each, the core reads through `other`, which holds no zero."""
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
