"""Computes each rank's gradient exchange time, and its overlap with computing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan, trainers
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
    whole = {span.id: span for span in rank.steps() if not span.truncated}
    parts = [span for span in rank.spans if span.parent in whole and not span.truncated]
    exchanges = {span.id for span in parts if span.name == kinds.EXCHANGE}
    if not exchanges:
        return None
    inside = [span for span in rank.spans if span.parent in exchanges and not span.truncated]
    recorded = {span.name for span in inside}

    def part_ns(name: str) -> int | None:
        return _sum([span for span in inside if span.name == name]) if name in recorded else None

    compute_ns = _sum([span for span in parts if span.name in (kinds.FORWARD_AND_BACKWARD, kinds.APPLY)])
    exchange_ns = _sum([span for span in parts if span.id in exchanges])
    packed = [span.attrs["bytes"] for span in inside if span.name == kinds.PACK and "bytes" in span.attrs]
    return ExchangeUse(
        role=rank.process.role,
        index=rank.process.index,
        calls=len(exchanges),
        bytes=sum(packed) if packed else None,
        compute_ns=compute_ns,
        exchange_ns=exchange_ns,
        pack_ns=part_ns(kinds.PACK),
        wait_for_peers_ns=part_ns(kinds.WAIT_FOR_PEERS),
        wire_ns=part_ns(kinds.WIRE),
        unpack_ns=part_ns(kinds.UNPACK),
        overlap=overlap(compute_ns, exchange_ns, _sum(list(whole.values()))),
    )


def _sum(spans: Sequence[RecordedSpan]) -> int:
    return sum(span.end_ns - span.start_ns for span in spans)
