"""What every parameter server does: a thread for each worker takes its calls, until it leaves.

    worker                                  server i
      [type, elements, buffer, call]  --->             of the shard that is this server's, as JSON
      the shard                     --->    receive
      ...                           <-->               what the server makes of it, and its answer: a subclass's
      nothing                       --->               this worker leaves
      a text, as JSON               --->               it leaves because something failed, which the others are told

The last answer of a call begins with OK, and has what was asked for; or it is FAILED, and why comes next.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import ChannelError, Connection
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.spans import SpanKind

OK, FAILED = b"\0", b"\1"
"""The first byte of the last answer. A failure has no other one, so that it fits into any worker's buffers."""

TEXT_BYTES = 1 << 16
"""The longest form or reason."""

BETWEEN_CALLS_S = 7 * 86_400.0
"""How long a worker may compute, evaluate or save between two calls. A dead one ends its connection."""

END_S = 5.0
"""How long the end of a connection or of a process may take."""


Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Form:
    """What a worker announces: an array of one type, which is part of a fusion buffer (below 0: of none) of its
    exchange number `call`."""

    dtype: str
    elements: int
    buffer: int
    call: int

    @property
    def key(self) -> Key:
        """What is the same in every exchange, and so has memory of its own."""
        return self.dtype, self.elements, self.buffer


class Server(ABC):
    """What its threads share.

    Args:
        index: of this server.
        connections: rank to the connection to it, for all ranks from 0.
        within_s: how long a call may wait for whatever it waits for.
    """

    def __init__(self, index: int, connections: Mapping[int, Connection], within_s: float) -> None:
        self._index = index
        self._connections = connections
        self._within_s = within_s
        self._pushed: dict[tuple[int, Key], NDArray[Any]] = {}
        self._answered = threading.Condition()
        self._unanswered: set[int] = set()

    def serve(self) -> None:
        """Returns once all workers have left."""
        threads = [
            threading.Thread(target=self._serve, args=(rank,), name=f"rank-{rank}", daemon=True)
            for rank in self._connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def finish(self, within_s: float) -> None:
        """Returns once all calls that have begun are answered, or fail, or the time has passed."""
        with self._answered:
            self._answered.wait_for(lambda: not self._unanswered, within_s)

    @abstractmethod
    def call(self, rank: int, connection: Connection, form: Form, own: NDArray[Any]) -> None:
        """Answers what `rank` has pushed, which is `own`.

        Raises:
            ExchangeFailed: it cannot, and the worker was told why.
            ChannelError: the worker is gone.
        """

    @abstractmethod
    def left(self, rank: int) -> None:
        """It calls no more, and all is well."""

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Whoever waits, and whoever calls, hears the reason; of several the first."""

    def _serve(self, rank: int) -> None:
        """One worker, until it leaves."""
        connection = self._connections[rank]
        said = bytearray(TEXT_BYTES)
        try:
            while size := connection.recv(said, time.monotonic() + BETWEEN_CALLS_S):
                self._unanswered.add(rank)
                self._take(rank, connection, said[:size].decode())
                self._is_answered(rank)
            self.left(rank)
        except ChannelError as error:
            self.fail(f"rank {rank} is gone ({error})")
        except ExchangeFailed as error:
            self.fail(str(error))
        except (ValueError, TypeError) as error:
            self.fail(f"rank {rank} says what makes no sense: {error}")
        finally:
            self._is_answered(rank)

    def _is_answered(self, rank: int) -> None:
        with self._answered:
            self._unanswered.discard(rank)
            self._answered.notify_all()

    def _take(self, rank: int, connection: Connection, text: str) -> None:
        announced = json.loads(text)
        if isinstance(announced, str):
            raise ExchangeFailed(announced)
        form = Form(*announced)
        if (own := self._pushed.get((rank, form.key))) is None:
            own = self._pushed[rank, form.key] = np.empty(form.elements, form.dtype)
        with self._span(kinds.RECEIVE, form, own, (rank, f"ps-{self._index}")):
            size = connection.recv(own, time.monotonic() + self._within_s)
        if size != own.nbytes:
            raise ExchangeFailed(f"rank {rank} pushed {size} bytes, which is not what it has announced")
        self.call(rank, connection, form, own)

    def answer(self, rank: int, connection: Connection, form: Form, values: NDArray[Any]) -> None:
        """Sends what was asked for. Raises ChannelError."""
        with self._span(kinds.SEND, form, values, (f"ps-{self._index}", rank)):
            connection.send_parts([OK, values], time.monotonic() + self._within_s)

    def _span(self, kind: SpanKind, form: Form, values: NDArray[Any], ends: tuple[int | str, int | str]) -> Any:
        transfers = [(*ends, values.nbytes, form.buffer)] if form.buffer >= 0 else []
        return tracing.span(kind, bytes=values.nbytes, call=form.call, transfers=transfers)


def refuse(connection: Connection, reason: str) -> None:
    """In place of an answer, where nothing else was said before in this call."""
    with suppress(ChannelError):
        connection.send(FAILED, time.monotonic() + END_S)
    tell(connection, reason)


def tell(connection: Connection, reason: str) -> None:
    """The worker closes once it has heard it; before that, what was sent might be lost."""
    with suppress(ChannelError):
        connection.send(reason.encode()[:TEXT_BYTES], time.monotonic() + END_S)
        connection.recv(bytearray(TEXT_BYTES), time.monotonic() + END_S)
