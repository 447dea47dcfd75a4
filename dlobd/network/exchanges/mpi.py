"""MPI_Allreduce, in place on the fusion buffers: the reference for the all-reduces of dlobd's own.

Ranks meet by the PMI server in the driver, whose address is beside the book's in PLACE, as `pmi`. The collective is
MPI_Iallreduce, asked for until it is complete: it takes as long as MPI_Allreduce, and a core that only waits is not
kept busy. MPI does not say that a rank has died, but the book does: it is asked beside a call that takes long.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from numpy.typing import NDArray

from dlobd.network.channels.base import ChannelError, DeadlinePassed
from dlobd.network.channels.ip import local_address
from dlobd.network.channels.mpi_session import MpiSession, environment
from dlobd.network.channels.spec import OVER_IP
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.all_reduce import AllReduceExchange, Meeting
from dlobd.network.formation.address_book import Entry, FormationError
from dlobd.network.formation.pmi import connect_pmi

ASK_AFTER_S = 1.0
"""A call that takes longer asks the book whether a rank has died, and again after each answer. Two messages of some
bytes a second do not disturb an exchange that takes seconds."""

LOOK_S = 0.05
"""Between two looks at what the book has answered."""

LEAVE_S = 30.0
"""How long a rank that ends waits for the others to end, after their last exchange."""

END_S = 1.0
"""How long a call that was given up may take to return."""

STUCK_S = 3.0
"""How long ranks whose deadline has passed wait for each other at the book, to tell which one is not among them."""


class MpiAllReduce(AllReduceExchange):
    """By MPI."""

    def meet(self, meeting: Meeting) -> MpiPeers:
        """Begins MPI in this process. Raises also SetupError: it cannot carry the transport."""
        preset = environment(meeting.channel.transport, meeting.channel.device)
        chosen = meeting.all_gather("netmod", preset["MPICH_CH4_NETMOD"])
        if len(set(chosen)) > 1:
            ranks = ", ".join(f"rank {k} {netmod}" for k, netmod in enumerate(chosen))
            raise ExchangeFailed(f"ranks on loopback cannot meet others by MPI: {ranks}")
        pmi = connect_pmi(meeting.pmi, meeting.rank, meeting.size, meeting.secret, meeting.deadline_s)
        by_ip = meeting.channel.transport in OVER_IP
        addresses = (local_address(meeting.channel.transport, meeting.channel.device),) if by_ip else ()
        return MpiPeers(MpiSession(preset, pmi, meeting.rank, meeting.size), meeting.book, addresses)


class MpiPeers:
    """See `dlobd.network.exchanges.all_reduce.Peers`. One thread makes all calls of MPI but the first and last: a call
    that does not return is left behind with it, and ends with the process, whose status may then be that of a crash."""

    def __init__(self, session: MpiSession, entry: Entry, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses
        self.session = session
        self._entry = entry
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._failed = False
        self._asking: threading.Thread | None = None
        self._dead: int | None = None
        self._thread = threading.Thread(target=self._call_all, name="dlobd-mpi", daemon=True)
        self._thread.start()

    def barrier(self, call: int, deadline_s: float) -> None:
        """See the contract."""
        self._barrier(deadline_s)

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        self._call(_Order(lambda: self.session.sum(array), deadline_s, "MPI did not end an all-reduce", sleep=False))

    def carried(self) -> list[tuple[int, int, int]]:
        """Nothing: MPI does not say by which ranks its all-reduce goes."""
        return []

    def evidence(self) -> None:
        """MPI does not count; the kernel does."""

    def addresses(self) -> tuple[str, ...]:
        """See the contract."""
        return self._addresses

    def fail(self) -> None:
        """Nothing: the others learn of it from the book."""

    def close(self) -> None:
        """Ends MPI together with the other ranks, unless it has failed: it then ends with this process."""
        try:
            if not self._failed:
                self._barrier(time.monotonic() + LEAVE_S)
            self._orders.put(None)
            self._thread.join(END_S)
            if not self._failed:
                self.session.finalise()
        except (ExchangeFailed, ChannelError) as error:
            print(f"dlobd: MPI is not finalised: {error}", file=sys.stderr, flush=True)
        if self._asking is not None:
            self._asking.join()

    def _call_all(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                self.session.complete(order.begin, order.deadline_s, order.what, order.sleep, order.given_up.is_set)
            except ChannelError as error:
                order.error = error
            order.done.set()

    def _barrier(self, deadline_s: float) -> None:
        self._call(_Order(self.session.barrier, deadline_s, "not all ranks came to a barrier of MPI", sleep=True))

    def _call(self, order: _Order) -> None:
        if self._failed:
            raise ExchangeFailed("MPI has failed before")
        self._orders.put(order)
        if not order.done.wait(min(ASK_AFTER_S, order.deadline_s - time.monotonic())):
            self._watch(order)
        if order.error is None and order.done.is_set():
            return
        self._failed = True
        order.given_up.set()
        order.done.wait(END_S)  # a process that ends while a thread is inside of MPI may crash
        if self._dead is not None:
            raise ExchangeFailed(f"rank {self._dead} is gone: {order.what}")
        if order.error is None or isinstance(order.error, DeadlinePassed):
            raise ExchangeFailed(f"{order.what} in time{self._who_is_stuck()}") from order.error
        raise ExchangeFailed(str(order.error)) from order.error

    def _watch(self, order: _Order) -> None:
        """Until a call that takes long is done, its deadline has passed, or the book says that a rank has died."""
        while self._dead is None and time.monotonic() < order.deadline_s:
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(target=self._ask, name="dlobd-mpi-ask", daemon=True)
                self._asking.start()
            if order.done.wait(LOOK_S):
                return

    def _ask(self) -> None:
        self._dead = self._entry.first_dead()

    def _who_is_stuck(self) -> str:
        """Of ranks that live, those whose deadline has not passed at about this time do something else."""
        try:
            self._entry.exchange("who is stuck?", "", time.monotonic() + STUCK_S)
        except FormationError as error:
            return f": {error}"
        return ""


class _Order:
    """One call of MPI, and what has become of it."""

    __slots__ = ("begin", "deadline_s", "done", "error", "given_up", "sleep", "what")

    def __init__(self, begin: Callable[[], Any], deadline_s: float, what: str, sleep: bool) -> None:
        self.begin = begin
        self.deadline_s = deadline_s
        self.what = what
        self.sleep = sleep
        self.done = threading.Event()
        self.given_up = threading.Event()
        self.error: ChannelError | None = None
