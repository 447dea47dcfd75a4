"""How fast the whole job trained, as tf_cnn_benchmarks defines it, and its steps' percentiles. Pure.

    mean          samples of a step / mean of the steps' times
    uncertainty   standard deviation of the steps' speeds / sqrt(steps); a step's speed is its samples / its time
    jitter        1.4826 * median of the speeds' distances from their median

of the steps after the first ten (`get_perf_timing` and `num_warmup_batches` in
https://github.com/tensorflow/benchmarks/blob/master/scripts/tf_cnn_benchmarks/benchmark_cnn.py). There a step's time is
that of one `Session.run`, whose graph takes its input from a queue. Here it lasts from the end of the step before, so
that it has the wait for input, and what the loop itself does; what the chief does between two steps that is no part of
training, a checkpoint or an evaluation, is left out, as there. All of it is seen from the chief: a step is a collective
of all ranks, and ends when the last of them has come.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from dlobd import spans as kinds
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.recorder import RecordedProcess, RecordedSpan
from dlobd.attribution.statistics import quantile
from dlobd.bundle.run import Quantiles, Throughput

WARMUP_STEPS = 10
"""Left out, as tf_cnn_benchmarks leaves them out by default: the first one is traced and compiled."""

MAD_TO_DEVIATION = 1.4826
"""Of normally distributed values the median absolute deviation times this is the standard deviation."""

PAUSES = (kinds.CHECKPOINT, kinds.EVALUATE, kinds.AGREE)
"""What the chief does between steps that is no part of training."""


def throughput(evidence: Evidence) -> Throughput | None:
    """Of the job's steps after the first ten; None where fewer than two are left, or none was recorded."""
    chief = evidence.chief
    steps = [span for span in chief.steps() if not span.truncated] if chief else []
    if chief is None or len(steps) < WARMUP_STEPS + 2:
        return None
    samples = evidence.job["workers"] * evidence.job["batch_size"]
    whole = _with_input(chief, steps)[WARMUP_STEPS - 1 :]
    speeds = [samples / ns * 1e9 for ns in whole]
    middle = statistics.median(speeds)
    return Throughput(
        warmup_steps=WARMUP_STEPS,
        steps=len(whole),
        samples_per_step=samples,
        mean=samples / statistics.fmean(whole) * 1e9,
        uncertainty=statistics.pstdev(speeds) / math.sqrt(len(speeds)),
        jitter=MAD_TO_DEVIATION * statistics.median(abs(speed - middle) for speed in speeds),
        step=_quantiles([span.end_ns - span.start_ns for span in steps[WARMUP_STEPS:]]),
        step_with_input=_quantiles(whole),
    )


def _with_input(chief: RecordedProcess, steps: Sequence[RecordedSpan]) -> list[int]:
    """Of each step but the first: nanoseconds since the step before, or since the last pause after that."""
    ends = sorted(span.end_ns for span in chief.spans if span.name in PAUSES)
    found = []
    for before, step in pairwise(steps):
        last = bisect_right(ends, step.start_ns)
        found.append(step.end_ns - max((before.end_ns, *ends[last - 1 : last])))
    return found


def _quantiles(lengths: Sequence[int]) -> Quantiles:
    ordered = sorted(lengths)
    p50, p90, p95, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99))
    return Quantiles(p50_ns=p50, p90_ns=p90, p95_ns=p95, p99_ns=p99, max_ns=ordered[-1])
