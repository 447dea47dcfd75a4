"""Parameter servers: a thread per worker serves its calls, until the worker leaves.

    worker                                  server i
      [type, elements, buffer, call]  --->             the form: describes this server's shard, as JSON
      the shard                     --->    receive
      ...                           <-->               the subclass answers
      empty message                 --->               this worker leaves
      a text, as JSON               --->               this worker leaves because of a failure, which the server reports
      to the other workers

The last answer of a call is OK and the result; or FAILED, followed by the reason.
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.network.channels.base import Array, ChannelError, Connection
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.rendezvous.store import names

OK, FAILED = b"\0", b"\1"
"""First byte of the last answer. A failure has no second byte, so it fits into every worker's buffers."""

TEXT_BYTES = 1 << 16  # maximum length of a form or a reason

BETWEEN_CALLS_S = 7 * 86_400.0
"""Longest time between two calls of a worker. A dead worker is detected earlier, because its connection ends."""

END_S = 5.0  # timeout for the end of a connection or of a process
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Form:
    """Announcement of a pushed part of an array. `buffer` is its fusion buffer (negative: none)."""

    dtype: str
    elements: int
    buffer: int
    call: int

    @property
    def key(self) -> Key:
        """Key of the preallocated memory, which is the same in every exchange."""
        return self.dtype, self.elements, self.buffer


class Server(ABC):
    """Base class of parameter servers, with a connection to each rank, and the timeout of a call."""

    def __init__(self, index: int, connections: Mapping[int, Connection], within_s: float) -> None:
        self._index = index
        self._connections = connections
        self._within_s = within_s
        self._pushed: dict[tuple[int, Key], Array] = {}
        self._answered = threading.Condition()
        self._unanswered: set[int] = set()

    def serve(self) -> None:
        threads = [
            threading.Thread(target=self._serve, args=(rank,), name=f"rank-{rank}", daemon=True)
            for rank in self._connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def finish(self, within_s: float) -> None:
        """Wait until all pending calls are answered or have failed, at most `within_s`."""
        with self._answered:
            self._answered.wait_for(lambda: not self._unanswered, within_s)

    @abstractmethod
    def call(self, rank: int, connection: Connection, form: Form, own: Array) -> None:
        """Answer the push `own` of `rank`.

        Raises ExchangeFailed if the call failed and the worker was informed, ChannelError if the worker is gone.
        """

    @abstractmethod
    def left(self, rank: int) -> None:
        """Handle a worker that has left without a failure."""

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Fail all waiting and later calls; the first reason stays."""

    def answer(self, rank: int, connection: Connection, form: Form, values: Array) -> None:
        """Send the result of a call. Raises ChannelError."""
        with self._span(kinds.SEND, form, values, (f"ps-{self._index}", rank)):
            connection.send_parts([OK, values], time.monotonic() + self._within_s)

    def _serve(self, rank: int) -> None:
        connection = self._connections[rank]
        text = bytearray(TEXT_BYTES)
        try:
            while size := connection.recv(text, time.monotonic() + BETWEEN_CALLS_S):
                self._unanswered.add(rank)
                self._serve_call(rank, connection, text[:size].decode())
                self._is_answered(rank)
            self.left(rank)
        except ChannelError as error:
            self.fail(f"rank {rank} is gone ({error})")
        except ExchangeFailed as error:
            self.fail(str(error))
        except (ValueError, TypeError) as error:
            self.fail(f"rank {rank} sent an invalid message: {error}")
        finally:
            self._is_answered(rank)

    def _is_answered(self, rank: int) -> None:
        with self._answered:
            self._unanswered.discard(rank)
            self._answered.notify_all()

    def _serve_call(self, rank: int, connection: Connection, text: str) -> None:
        announced = json.loads(text)
        if isinstance(announced, str):
            raise ExchangeFailed(announced)
        form = Form(*announced)
        if (own := self._pushed.get((rank, form.key))) is None:
            own = self._pushed[rank, form.key] = np.empty(form.elements, form.dtype)
        with self._span(kinds.RECEIVE, form, own, (rank, f"ps-{self._index}")):
            size = connection.recv(own, time.monotonic() + self._within_s)
        if size != own.nbytes:
            raise ExchangeFailed(f"rank {rank} pushed {size} bytes, but announced {own.nbytes}")
        self.call(rank, connection, form, own)

    def _span(self, kind: kinds.SpanKind, form: Form, values: Array, ends: tuple[int | str, int | str]) -> Any:
        transfers = [(*ends, values.nbytes, form.buffer)] if form.buffer >= 0 else []
        return tracing.span(kind, bytes=values.nbytes, call=form.call, transfers=transfers)


class SynchronousServer(Server):
    """Server that sums its shard of the pushed gradients. Workers wait for each other.

    worker                                  server i
      the shard                     --->    receive
             <--- empty, or the reason of a failure    once all have pushed
                                            sum        in the order of the ranks: the same bits in any order of arrival
             <--- OK and the sum; or FAILED
    """

    def __init__(self, index: int, connections: Mapping[int, Connection], within_s: float) -> None:
        super().__init__(index, connections, within_s)
        self._barrier = WorkerBarrier(len(connections), within_s)
        self._forms: dict[int, Form] = {}  # pushes of the current call
        self._totals: dict[Key, Array] = {}

    def call(self, rank: int, connection: Connection, form: Form, own: Array) -> None:
        self._forms[rank] = form
        try:
            self._barrier.wait(rank, self._check)
        except ExchangeFailed as error:
            _send_reason(connection, str(error))
            raise
        connection.send(b"", time.monotonic() + self._within_s)
        try:
            self._barrier.wait(rank, self._sum)
        except ExchangeFailed as error:
            _send_failure(connection, str(error))
            raise
        self.answer(rank, connection, form, self._totals[form.key])

    def left(self, rank: int) -> None:
        """Fail the workers that still wait for the departed worker."""
        self._barrier.fail(f"rank {rank} has left")

    def fail(self, reason: str) -> None:
        self._barrier.fail(reason)

    def _check(self) -> None:
        for rank, form in self._forms.items():
            if form != self._forms[0]:
                raise ExchangeFailed(f"rank {rank} pushed other shapes than rank 0: the programs differ")

    def _sum(self) -> None:
        """Sum the pushes in the last worker's thread, while all other threads wait."""
        key = self._forms[0].key
        first, *others = (self._pushed[rank, key] for rank in range(len(self._connections)))
        if key not in self._totals:
            self._totals[key] = np.empty_like(first)
        total = self._totals[key]
        with tracing.span(kinds.SUM):
            np.copyto(total, first)
            for other in others:
                np.add(total, other, out=total)


class AsynchronousServer(Server):
    """Server that answers each push with the sum of all pushes since that worker's last call, including its own.

    worker                                  server i
      the shard                     --->    receive
                                            sum        added to the pending sum of each worker
             <--- OK and this worker's pending sum; or FAILED

    A worker waits only while the server adds its push. The parameters stay with the workers: a worker that applies -lr
    times each answer has the parameters of a server that applied -lr times each push at once, if the update is linear
    in the gradients and constant over time. So this is the plain stochastic gradient descent of asynchronous parameter
    servers (Dean et al. 2012, "Large Scale Distributed Deep Networks", Downpour SGD with n_push = n_fetch = 1); no
    other optimiser is supported.
    """

    def __init__(self, index: int, connections: Mapping[int, Connection], within_s: float) -> None:
        super().__init__(index, connections, within_s)
        self._adding = threading.Lock()
        self._pending: dict[Key, list[Array]] = {}  # pending sums by rank
        self._answers: dict[tuple[int, Key], Array] = {}
        self._failure = ""

    def call(self, rank: int, connection: Connection, form: Form, own: Array) -> None:
        if self._failure:
            _send_failure(connection, self._failure)
            raise ExchangeFailed(self._failure)
        key = form.key
        with tracing.span(kinds.SUM):
            reused = self._answers.get((rank, key))  # the previous answer was sent, so its memory is free
            if reused is None:
                reused = np.empty_like(own)
            reused.fill(0)
            with self._adding:
                if key not in self._pending:
                    self._pending[key] = [np.zeros_like(own) for _ in self._connections]
                pending = self._pending[key]
                for total in pending:
                    np.add(total, own, out=total)
                pending[rank], self._answers[rank, key] = reused, pending[rank]
        self.answer(rank, connection, form, self._answers[rank, key])

    def left(self, rank: int) -> None:
        pass  # the other workers continue

    def fail(self, reason: str) -> None:
        self._failure = self._failure or reason


class WorkerBarrier:
    """Barrier of the server's threads. Unlike `threading.Barrier` it reports late workers and the reason of a failure.

    A failure is permanent. The first worker waits at most `within_s` for the last worker.
    """

    def __init__(self, workers: int, within_s: float) -> None:
        self._workers = workers
        self._within_s = within_s
        self._changed = threading.Condition()
        self._present: set[int] = set()
        self._passed = 0
        self._failure = ""

    def wait(self, rank: int, action: Callable[[], None]) -> None:
        """Wait until all workers have arrived and the last worker has run its action.

        Raises ExchangeFailed: a worker is late, or `fail` was called.
        """
        with self._changed:
            number = self._passed
            self._check()
            self._present.add(rank)
            if len(self._present) == self._workers:
                try:
                    action()
                except ExchangeFailed as error:
                    self.fail(str(error))
                    raise
                self._present.clear()
                self._passed += 1
                self._changed.notify_all()
            elif not self._changed.wait_for(lambda: self._passed > number or self._failure, self._within_s):
                late = sorted(set(range(self._workers)) - self._present)
                self.fail(f"{names(late)} did not push in time")
            if self._passed == number:
                self._check()

    def fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _check(self) -> None:
        if self._failure:
            raise ExchangeFailed(self._failure)


def _send_failure(connection: Connection, reason: str) -> None:
    with suppress(ChannelError):
        connection.send(FAILED, time.monotonic() + END_S)
    _send_reason(connection, reason)


def _send_reason(connection: Connection, reason: str) -> None:
    """Send a reason, and wait until the worker closes: an earlier close might lose the sent bytes."""
    with suppress(ChannelError):
        connection.send(reason.encode()[:TEXT_BYTES], time.monotonic() + END_S)
        connection.recv(bytearray(TEXT_BYTES), time.monotonic() + END_S)
