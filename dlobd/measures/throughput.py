"""Computes the job's training throughput, as tf_cnn_benchmarks defines it, its steps and their exchange time. Pure.

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
from dataclasses import astuple

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import MOST, Flags, Ints
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorded_spans import RecordedSpans
from dlobd.evidence.recorder import RecordedProcess, Sum, trainers
from dlobd.measures.statistics import quantile
from dlobd.record.run import ExchangeUse, Quantiles, Throughput
from dlobd.spans import SpanKind

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


def exchange_use(evidence: Evidence) -> tuple[ExchangeUse, ...]:
    """Return the exchanges of each rank outside of its compiled steps, without truncated exchanges."""
    ranks = sorted(trainers(evidence.processes), key=lambda rank: (rank.process.role, rank.process.index))
    return tuple(use for rank in ranks if (use := _exchange_use(rank)) is not None)


def overlap(compute_ns: int, exchange_ns: int, steps_ns: int) -> float | None:
    """Return (M + P - U) / min(M, P), at least 0 (Hashemi et al. 2019, TicTac), for compute, exchange and step times M,
    P and U; None if M or P is 0."""
    shorter_ns = min(compute_ns, exchange_ns)
    return max(0.0, (compute_ns + exchange_ns - steps_ns) / shorter_ns) if shorter_ns > 0 else None


def _exchange_use(rank: RecordedProcess) -> ExchangeUse | None:
    spans = rank.spans
    outer, whole = spans.outer, spans.is_step & ~spans.truncated
    part = np.append(whole, False)[outer] & ~spans.truncated
    exchange = part & spans.is_named(kinds.EXCHANGE)
    if not exchange.any():
        return None
    inside = np.append(exchange, False)[outer] & ~spans.truncated
    written, summed = rank.left_out

    def sum_of(rows: Flags, *of: SpanKind) -> Sum | None:
        """Sum the spans of these kinds, with those inside summed steps; None without such a span, or if it is lost."""
        rows = rows & spans.is_named(*of)
        left_out = [one for kind in of if (one := rank.sums.get((kind.layer, kind)))]
        if written != summed or not (rows.any() or left_out):
            return None
        here = Sum(int(rows.sum()), int(spans.ns[rows].sum()), int(spans.values("bytes")[rows].sum()))
        return Sum(*map(sum, zip(*map(astuple, [here, *left_out]), strict=True)))

    compute = sum_of(part, kinds.FORWARD_AND_BACKWARD, kinds.APPLY)
    parts = [sum_of(inside, kind) for kind in (kinds.PACK, kinds.WAIT_FOR_PEERS, kinds.WIRE, kinds.UNPACK)]
    pack_ns, wait_for_peers_ns, wire_ns, unpack_ns = (one.ns if one else None for one in parts)
    exchange_ns = int(spans.ns[exchange].sum())
    return ExchangeUse(
        role=rank.process.role,
        index=rank.process.index,
        calls=int(exchange.sum()),
        bytes=parts[0].bytes if parts[0] else None,
        compute_ns=compute.ns if compute else None,
        exchange_ns=exchange_ns,
        pack_ns=pack_ns,
        wait_for_peers_ns=wait_for_peers_ns,
        wire_ns=wire_ns,
        unpack_ns=unpack_ns,
        overlap=overlap(compute.ns, exchange_ns, int(spans.ns[whole].sum())) if compute else None,
    )
