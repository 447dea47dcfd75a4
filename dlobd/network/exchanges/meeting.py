"""How the ranks of dlobd's own exchanges meet: through the driver's address book, each with a channel of its own.

The book's place and secret are in the environment, as the driver's clock is. Ranks listen on the channel's device,
without one on the address that their launcher gave them, and nowhere else.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence

from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import Channel
from dlobd.network.channels.spec import ChannelSpec
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.base import Settings
from dlobd.network.formation.address_book import Entry
from dlobd.network.transport.counters import Snapshot
from dlobd.network.transport.evidence import record
from dlobd.tracing import names

PLACE = "_DLOBD_ADDRESS_BOOK"
"""The environment variable with the book's address and the run's secret, as JSON. Between dlobd's processes only."""

JOIN_S = 60.0
"""How long ranks wait for one that does not come, as with TensorFlow's own exchange. All were started together."""

DEADLINE_S = 60.0
"""How long one exchange may take: 64 MB over 1 Gbit/s take a second. A rank that evaluates or saves is not waited for
in an exchange: the others have ended by then."""


class Meeting:
    """Of one rank, from when it joins until it leaves.

    Attributes:
        deadline_s: until when all have to have joined, a time of time.monotonic().
        secret, transport, device: of the channel.

    Args:
        peers: the addresses host:port of all ranks, as their launcher knows them.

    Raises:
        FormationError: the book does not answer.
    """

    def __init__(self, settings: Settings, peers: Sequence[str], rank: int) -> None:
        self.deadline_s = time.monotonic() + JOIN_S
        spec = ChannelSpec.parse(settings.channel)
        place = json.loads(os.environ[PLACE])
        self.secret: str = place["secret"]
        self.transport = spec.transport
        # the device that was asked for; else that which has the address that the launcher gave this rank
        self.device = spec.device or socket.gethostbyname(peers[rank].rpartition(":")[0])
        self._rank = rank
        self._library = settings.library
        self.entry = Entry(place["address"], rank, self.secret.encode(), self.deadline_s)
        self._before: Snapshot | None = Snapshot.read()
        try:
            made = LIBRARIES.get(settings.library)(self.transport, self.device, self.secret.encode())
        except BaseException:
            self.entry.close()
            raise
        self.channel: Channel = made

    def all_gather(self, name: str, value: str) -> list[str]:
        """What all ranks gave under this name. Raises FormationError."""
        return self.entry.exchange(name, value, self.deadline_s)

    def failed(self, error: ExchangeFailed) -> ExchangeFailed:
        """The same error, or that with the rank that went first, of which `error` may only be what came of it."""
        dead = self.entry.first_dead()
        self.channel.close()  # so that those who wait for this rank learn of it now
        if dead is None or f"rank {dead} " in str(error):
            return error
        return ExchangeFailed(f"rank {dead} is gone; so {error}")

    def record_transport(self) -> None:
        """Says what carried the bytes, once; before the connections are closed."""
        if self._before is not None:
            told = self.channel.evidence()
            found = record(self._rank, self._library, self._before, lanes=told.lanes, traffic=told)
            tracing.instant(names.TRANSPORT, **found)
            self._before = None

    def leave(self) -> None:
        """Closes the channel and says bye. May be called twice."""
        self.channel.close()
        self.entry.close()
