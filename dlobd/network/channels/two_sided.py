"""What libraries share that only send and receive: calls that say so, and counts of what was carried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dlobd.network.channels.base import Buffer, Kind, NotSupported, Traffic


class TwoSided:
    """The part of `dlobd.network.channels.base.Connection` that it does not have."""

    library: str

    def begin_send(self, message: Buffer) -> Any:
        """Raises NotSupported."""
        raise NotSupported(f"library {self.library} sends only as a whole")

    def finish_send(self, begun: Any, deadline_s: float) -> None:
        """Raises NotSupported."""
        raise NotSupported(f"library {self.library} sends only as a whole")

    def register(self, memory: Buffer) -> bytes:
        """Raises NotSupported."""
        raise self._not_supported()

    def put(self, source: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Raises NotSupported."""
        raise self._not_supported()

    def get(self, into: Buffer, key: bytes, offset_bytes: int, deadline_s: float) -> None:
        """Raises NotSupported."""
        raise self._not_supported()

    def flush(self, deadline_s: float) -> None:
        """Raises NotSupported."""
        raise self._not_supported()

    def _not_supported(self) -> NotSupported:
        return NotSupported(f"library {self.library} has no one-sided access to memory")


@dataclass(slots=True)
class Counts:
    """What one connection has carried. No lock guards it: one thread sends, and one receives.

    `kind` and `device` are of the interface that carries it.
    """

    kind: Kind
    device: str
    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0


def traffic(connections: Iterable[Counts]) -> Traffic:
    """Of all of them together. Where they differ in kind it is `mixed`; several devices are joined by commas."""
    every = list(connections)
    kinds = {counts.kind for counts in every}
    return Traffic(
        kind=kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "unknown",
        device=",".join(sorted({counts.device for counts in every if counts.device})),
        sent_messages=sum(counts.sent_messages for counts in every),
        sent_bytes=sum(counts.sent_bytes for counts in every),
        received_messages=sum(counts.received_messages for counts in every),
        received_bytes=sum(counts.received_bytes for counts in every),
        put_bytes=0,
        got_bytes=0,
    )
