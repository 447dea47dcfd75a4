"""MPI_Allreduce, in place on the fusion buffers: the reference for the all-reduces of dlobd's own.

Ranks meet by the PMI server in the driver, whose address is beside the book's in PLACE, as `pmi`. The collective is
MPI_Iallreduce, asked for until it is complete: it takes as long as MPI_Allreduce, and can be given up. MPI does not say
that a rank has died, but the book does: it is asked beside a call that takes longer than it should.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from dlobd.network.channels.base import ChannelError, DeadlinePassed
from dlobd.network.channels.mpi_session import MpiSession, environment
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.all_reduce import AllReduceExchange, Peers
from dlobd.network.formation.address_book import Entry, FormationError
from dlobd.network.formation.pmi import connect_pmi
from dlobd.schema import NotMeasured

ASK_AFTER_S = 1.0
"""A call that takes longer asks the book whether a rank has died, and again after each answer. Two messages of some
bytes a second do not disturb an exchange that takes seconds."""

LEAVE_S = 30.0
"""How long a rank that ends waits for the others to end, after their last exchange."""

STUCK_S = 3.0
"""How long ranks whose deadline has passed wait for each other at the book, to tell which one is not among them."""


class MpiAllReduce(AllReduceExchange):
    """By MPI."""

    not_measured: ClassVar[NotMeasured | None] = None

    def meet(self, rank: int, size: int, host: str, place: Mapping[str, str], entry: Entry, deadline_s: float) -> Peers:
        """Begins MPI in this process. Raises also SetupError: it cannot carry the transport."""
        preset = environment("tcp", host)
        chosen = entry.exchange("netmod", preset["MPICH_CH4_NETMOD"], deadline_s)
        if len(set(chosen)) > 1:
            ranks = ", ".join(f"rank {k} {netmod}" for k, netmod in enumerate(chosen))
            raise ExchangeFailed(f"ranks on loopback cannot meet others by MPI: {ranks}")
        pmi = connect_pmi(place["pmi"], rank, size, place["secret"].encode(), deadline_s)
        return MpiPeers(MpiSession(preset, pmi, rank, size), entry)


class MpiPeers:
    """See `dlobd.network.exchanges.all_reduce.Peers`."""

    def __init__(self, session: MpiSession, entry: Entry) -> None:
        self._session = session
        self._entry = entry
        self._calls = 0
        self._asking: threading.Thread | None = None
        self._ask_at_s = 0.0
        self._dead: int | None = None
        self._failed = False

    def barrier(self, deadline_s: float) -> None:
        """See the contract."""
        self._complete(self._session.world.Ibarrier(), deadline_s, "not all ranks came to a barrier of MPI", sleep=True)

    def all_reduce(self, array: NDArray[Any], deadline_s: float) -> None:
        """See the contract."""
        self._complete(self._session.sum(array), deadline_s, "MPI did not end an all-reduce", sleep=False)

    def close(self) -> None:
        """Ends MPI, unless it has failed: it then ends with this process, which waits for nobody."""
        if not self._failed:
            try:
                self._session.close(time.monotonic() + LEAVE_S)
            except ChannelError as error:
                print(f"dlobd: MPI is not finalised: {error}", file=sys.stderr, flush=True)
        if self._asking is not None:
            self._asking.join()

    def _complete(self, request: Any, deadline_s: float, what: str, sleep: bool) -> None:
        self._calls += 1
        self._ask_at_s = time.monotonic() + ASK_AFTER_S
        try:
            self._session.wait(request, deadline_s, what, sleep, self._look)
        except DeadlinePassed as error:
            self._failed = True
            raise ExchangeFailed(f"{error}{self._who_is_stuck()}") from error
        except ChannelError as error:
            self._failed = True
            raise ExchangeFailed(str(error)) from error

    def _look(self) -> None:
        """Whether a rank has died, as the book has last said; the book takes its time, and MPI must be asked on."""
        if self._dead is not None:
            raise ChannelError(f"rank {self._dead} is gone")
        if time.monotonic() > self._ask_at_s and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, name="dlobd-mpi-ask", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        self._dead = self._entry.first_dead()

    def _who_is_stuck(self) -> str:
        """Of ranks that live, those whose deadline has not passed at about this time do something else."""
        try:
            self._entry.exchange(f"stuck in call {self._calls}", "", time.monotonic() + STUCK_S)
        except FormationError as error:
            return f": {error}"
        return ""
