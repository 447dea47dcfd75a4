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

import math
import statistics

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import MOST, Ints
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
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
    steps = chief.steps() if chief else RecordedSpans.of(())
    steps = steps.where(~steps.truncated)
    if chief is None or len(steps) < WARMUP_STEPS + 2 or evidence.topology.user_script:
        return None
    samples = evidence.job["workers"] * evidence.job["batch_size"]
    whole = _with_input(chief, steps)[WARMUP_STEPS - 1 :]
    speeds = samples / whole * 1e9
    middle, wide = np.median(speeds), speeds.astype(np.longdouble)  # the sum of squares keeps all digits
    deviation = float(np.sqrt(((wide - wide.mean()) ** 2).mean()))
    return Throughput(
        warmup_steps=WARMUP_STEPS,
        steps=len(whole),
        samples_per_step=samples,
        mean=samples / statistics.fmean(whole.tolist()) * 1e9,
        uncertainty=deviation / math.sqrt(len(speeds)),
        jitter=MAD_TO_DEVIATION * float(np.median(np.abs(speeds - middle))),
        step=_quantiles(steps.ns[WARMUP_STEPS:]),
        step_with_input=_quantiles(whole),
    )


def _with_input(chief: RecordedProcess, steps: RecordedSpans) -> Ints:
    """Return, for all steps except the first, the time since the previous step, or since the last pause after it."""
    pauses_ns = np.sort(chief.named(*PAUSES).end_ns)
    last = np.searchsorted(pauses_ns, steps.start_ns[1:], "right")
    paused_ns = np.append(pauses_ns, -MOST)[last - 1]
    lengths_ns: Ints = steps.end_ns[1:] - np.maximum(steps.end_ns[:-1], paused_ns)
    return lengths_ns


def _quantiles(lengths: Ints) -> Quantiles:
    ordered = np.sort(lengths).tolist()
    p50, p90, p95, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99))
    return Quantiles(p50_ns=p50, p90_ns=p90, p95_ns=p95, p99_ns=p99, max_ns=ordered[-1])
