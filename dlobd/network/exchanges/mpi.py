"""MPI_Allreduce in place on the fusion buffers, the reference for dlobd's own all-reduces.

Ranks start MPI through the PMI server in the driver, whose address is in RENDEZVOUS. The collective is MPI_Iallreduce,
polled until it is complete: it takes as long as MPI_Allreduce, but a waiting rank does not keep its core busy. MPI does
not report dead ranks, so a long call also asks the store for them.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from dlobd.channel import over_ip
from dlobd.network.channels.base import Array, ChannelError, DeadlinePassed
from dlobd.network.channels.ip import local_address
from dlobd.network.channels.mpi_session import MpiSession, environment
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.outside_step import JoinContext, OutsideStepExchange, Peers
from dlobd.network.rendezvous.pmi import connect_pmi
from dlobd.network.rendezvous.store import RendezvousError, StoreClient

ASK_AFTER_S = 1.0
"""Time after which a call asks the store for dead ranks, repeatedly: two messages of a few bytes per second."""

POLL_S = 0.05  # interval between checks of the store's answer
LEAVE_S = 30.0  # timeout of a finished rank that waits for the other ranks after the last exchange
END_S = 1.0  # time for an abandoned call to return
STUCK_S = 3.0  # timeout of a rendezvous at the store after a passed deadline, which finds the blocked rank


class MpiAllReduce(OutsideStepExchange):
    """Exchange `mpi`: MPI_Iallreduce of MPICH."""

    def connect(self, context: JoinContext) -> "MpiPeers":
        """Start MPI in this process. Raises also SetupError if MPI cannot carry the transport."""
        preset = environment(context.channel.transport, context.channel.device)
        netmods = context.all_gather("netmod", preset["MPICH_CH4_NETMOD"])
        if len(set(netmods)) > 1:
            ranks = ", ".join(f"rank {k} {netmod}" for k, netmod in enumerate(netmods))
            raise ExchangeFailed(f"ranks on loopback cannot reach other hosts by MPI: {ranks}")
        pmi = connect_pmi(context.pmi, context.rank, context.size, context.secret, context.deadline_s)
        channel = context.channel
        addresses = (local_address(channel.transport, channel.device),) if over_ip(channel.transport) else ()
        return MpiPeers(MpiSession(preset, pmi, context.rank, context.size), context.store, addresses)


class MpiPeers(Peers):
    """MPI's communicator. MPI reports neither transfers nor bytes; ranks ask the store for dead ranks.

    One thread makes all MPI calls except the first and last. A call that does not return is abandoned with its thread,
    which ends with the process; the process may then end by a crash.
    """

    def __init__(self, session: MpiSession, store: StoreClient, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.session = session
        self._store = store
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._failed = False
        self._asking: threading.Thread | None = None
        self._dead: int | None = None
        self._thread = threading.Thread(target=self._call_all, name="dlobd-mpi", daemon=True)
        self._thread.start()

    def barrier(self, call: int, deadline_s: float) -> None:
        self._run(_Call(self.session.barrier, deadline_s, "not all ranks reached a barrier of MPI", sleep=True))

    def all_reduce(self, array: Array, deadline_s: float) -> None:
        self._run(_Call(lambda: self.session.sum(array), deadline_s, "MPI did not complete an all-reduce", sleep=False))

    def close(self) -> None:
        """End MPI together with the other ranks. After a failure MPI ends with this process."""
        try:
            if not self._failed:
                self.barrier(-1, time.monotonic() + LEAVE_S)  # after the last exchange
            self._queue.put(None)
            self._thread.join(END_S)
            if not self._failed:
                self.session.finalise()
        except (ExchangeFailed, ChannelError) as error:
            print(f"dlobd: MPI was not finalised: {error}", file=sys.stderr, flush=True)
        if self._asking is not None:
            self._asking.join()

    def _call_all(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                self.session.complete(call.begin, call.deadline_s, call.what, call.sleep, call.given_up.is_set)
            except ChannelError as error:
                call.error = error
            call.done.set()

    def _run(self, call: "_Call") -> None:
        if self._failed:
            raise ExchangeFailed("MPI failed in an earlier call")
        self._queue.put(call)
        if not call.done.wait(min(ASK_AFTER_S, call.deadline_s - time.monotonic())):
            self._watch(call)
        if call.error is None and call.done.is_set():
            return
        self._failed = True
        call.given_up.set()
        call.done.wait(END_S)  # a process may crash if it ends while a thread is inside MPI
        if self._dead is not None:
            raise ExchangeFailed(f"rank {self._dead} is gone: {call.what}")
        if call.error is None or isinstance(call.error, DeadlinePassed):
            raise ExchangeFailed(f"{call.what} in time{self._who_is_stuck()}") from call.error
        raise ExchangeFailed(str(call.error)) from call.error

    def _watch(self, call: "_Call") -> None:
        """Ask the store for dead ranks until the call is done or its deadline has passed."""
        while self._dead is None and time.monotonic() < call.deadline_s:
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(target=self._ask, name="dlobd-mpi-ask", daemon=True)
                self._asking.start()
            if call.done.wait(POLL_S):
                return

    def _ask(self) -> None:
        self._dead = self._store.first_dead()

    def _who_is_stuck(self) -> str:
        """Name the live ranks that do not join the search: they have not passed the deadline, but are blocked."""
        try:
            self._store.all_gather("search for the blocked rank", "", time.monotonic() + STUCK_S)
        except RendezvousError as error:
            return f": {error}"
        return ""


@dataclass(slots=True)
class _Call:
    """Call of MPI, and its result."""

    begin: Callable[[], Any]
    deadline_s: float
    what: str  # start of the error message
    sleep: bool
    done: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)
    error: ChannelError | None = None
