"""Computes each rank's gradient exchange time, and its overlap with computing. Pure."""

from dataclasses import astuple

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import Flags
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, Sum, trainers
from dlobd.record.run import ExchangeUse
from dlobd.spans import SpanKind


def exchange_use(evidence: Evidence) -> tuple[ExchangeUse, ...]:
    """Return the exchanges of each rank outside of its compiled steps, without truncated exchanges."""
    ranks = sorted(trainers(evidence.processes), key=lambda rank: (rank.process.role, rank.process.index))
    return tuple(use for rank in ranks if (use := _use(rank)) is not None)


def overlap(compute_ns: int, exchange_ns: int, steps_ns: int) -> float | None:
    """Return (M + P - U) / min(M, P), at least 0 (Hashemi et al. 2019, TicTac), for compute, exchange and step times M,
    P and U; None if M or P is 0."""
    shorter_ns = min(compute_ns, exchange_ns)
    return max(0.0, (compute_ns + exchange_ns - steps_ns) / shorter_ns) if shorter_ns > 0 else None


def _use(rank: RecordedProcess) -> ExchangeUse | None:
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
