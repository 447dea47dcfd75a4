"""Computes each rank's gradient exchange time, and its overlap with computing. Pure."""

from __future__ import annotations

import numpy as np

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, trainers
from dlobd.record.run import ExchangeUse


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
    inside = spans.where(np.append(exchange, False)[outer] & ~spans.truncated)

    def part_ns(name: str) -> int | None:
        found = inside.named(name)
        return int(found.ns.sum()) if found else None

    compute_ns = int(spans.ns[part & spans.is_named(kinds.FORWARD_AND_BACKWARD, kinds.APPLY)].sum())
    exchange_ns = int(spans.ns[exchange].sum())
    packed = inside.where(inside.is_named(kinds.PACK) & inside.has("bytes"))
    return ExchangeUse(
        role=rank.process.role,
        index=rank.process.index,
        calls=int(exchange.sum()),
        bytes=int(packed.values("bytes").sum()) if packed else None,
        compute_ns=compute_ns,
        exchange_ns=exchange_ns,
        pack_ns=part_ns(kinds.PACK),
        wait_for_peers_ns=part_ns(kinds.WAIT_FOR_PEERS),
        wire_ns=part_ns(kinds.WIRE),
        unpack_ns=part_ns(kinds.UNPACK),
        overlap=overlap(compute_ns, exchange_ns, int(spans.ns[whole].sum())),
    )
