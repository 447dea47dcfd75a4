"""By what a run's bytes went, and what exchanging gradients took, as its run.json tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plane:
    """One of the ways on which a job's processes talk: exchange, tensorflow-grpc, spark, hdfs; by what its bytes went.

    kind: verbs, ipoib, tcp, shm, local, mixed or unknown.
    device: RDMA devices and ports; empty where there is none, several with commas between them.
    interface: what counted the bytes of IP, or carries RoCE; `lo` between ranks of one host.
    soft: one of the devices is in software: it counts as verbs, never as performance.
    evidence: sentences, with figures.
    asked: the channel, as it was asked for; empty where nothing was.
    agrees: whether that is what was used; None where nothing was asked for, or it is not known.
    """

    plane: str
    kind: str
    device: str
    interface: str
    addresses: tuple[str, ...]
    soft: bool
    evidence: tuple[str, ...]
    asked: str
    agrees: bool | None

    def disagreement(self) -> str:
        """One line where what was used is not what was asked for; empty otherwise."""
        if self.agrees is not False:
            return ""
        if self.kind == "unknown":
            return f"{self.plane}: {self.asked} was asked for, and it was not used: {self.evidence[-1]}"
        where = self.device or self.interface
        line = f"{self.plane}: {self.asked} was asked for, and {self.kind}{f' ({where})' if where else ''} was used"
        # which interface it was does not tell whether it was one of a network
        return f"{line}: {self.evidence[-1]}" if "/" in self.asked else line


@dataclass(frozen=True, slots=True)
class ExchangeUse:
    """A rank's exchanges of all its steps, by their parts; None where the exchange does not tell them apart.

    bytes: packed, of all calls together.
    overlap: (M + P - U) / min(M, P) of computing M, exchanging P and the steps U (Hashemi et al. 2019): 1 where the
        shorter of both is hidden entirely, 0 where nothing overlaps.
    """

    role: str
    index: int
    calls: int
    bytes: int | None
    compute_ns: int
    exchange_ns: int
    pack_ns: int | None
    wait_for_peers_ns: int | None
    wire_ns: int | None
    unpack_ns: int | None
    overlap: float | None
