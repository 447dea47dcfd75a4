"""Computes the whole job's training throughput, as tf_cnn_benchmarks defines it, and quantiles of its steps. Pure.

    mean          samples of a step / mean of the steps' times
    uncertainty   standard deviation of the steps' speeds / sqrt(steps); a step's speed is its samples / its time
    jitter        1.4826 * median of the speeds' distances from their median

of the steps after the first ten (`get_perf_timing` and `num_warmup_batches` in
https://github.com/tensorflow/benchmarks/blob/master/scripts/tf_cnn_benchmarks/benchmark_cnn.py). There a step lasts as
long as one `Session.run`, whose graph takes its input from a queue. Here a step lasts from the end of the previous
step, so that it includes the wait for input and the loop itself. Both omit the chief's checkpoints and evaluations
between two steps. The chief's spans suffice: a step is a collective of all ranks, and ends when the last rank joins.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.measures.statistics import quantile
from dlobd.record.run import Quantiles, Throughput

WARMUP_STEPS = 10
"""Number of steps left out, tf_cnn_benchmarks' default: the first step is traced and compiled."""

MAD_TO_DEVIATION = 1.4826
"""Ratio of standard deviation and median absolute deviation of normally distributed values."""

PAUSES = (kinds.CHECKPOINT, kinds.EVALUATE, kinds.AGREE)
"""Work of the chief between steps that is not training."""


def throughput(evidence: Evidence) -> Throughput | None:
    """Return the throughput of the steps after the first ten; None if fewer than two are left or recorded, or
    if the user's script decides the number of samples."""
    chief = evidence.chief
    steps = [span for span in chief.steps() if not span.truncated] if chief else []
    if chief is None or len(steps) < WARMUP_STEPS + 2 or evidence.topology.user_script:
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
    """Return, for all steps except the first, the time since the previous step, or since the last pause after it."""
    ends = sorted(span.end_ns for span in chief.spans if span.name in PAUSES)
    lengths_ns = []
    for before, step in pairwise(steps):
        last = bisect_right(ends, step.start_ns)
        lengths_ns.append(step.end_ns - max((before.end_ns, *ends[last - 1 : last])))
    return lengths_ns


def _quantiles(lengths: Sequence[int]) -> Quantiles:
    ordered = sorted(lengths)
    p50, p90, p95, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99))
    return Quantiles(p50_ns=p50, p90_ns=p90, p95_ns=p95, p99_ns=p99, max_ns=ordered[-1])
