"""PMI-1, by which the ranks of MPI find each other: a server in the driver, without mpiexec and without ssh.

PMI does not authenticate, so a rank does it before: it proves that it knows the run's secret
(`dlobd.network.channels.authentication`), says which rank it is, and is told once all ranks have come. From then on the
same connection speaks PMI, and is handed on to MPI, in the rank's own process, as the descriptor PMI_FD.

    rank r                                    server
      proof, rank, ranks, within_s     --->            a message each way, over the channel of sockets
               <--- "" or why not
      cmd=init ...                     --->            lines of text from here on: the wire protocol of PMI 1.1
               <--- cmd=response_to_init ...

`dlobd.network.formation.pmi_wire` has these lines. MPI's own traffic neither authenticates nor encrypts: whoever can
send to the ports of its ranks can send to MPI.
"""

from __future__ import annotations

import secrets
import socket
import struct
import sys
import threading
import time
from collections import deque

from dlobd.network.channels import authentication
from dlobd.network.channels.base import ChannelError, MessageTooLong
from dlobd.network.channels.socket_connection import SocketsConnection
from dlobd.network.channels.socket_listener import REFUSED_KEPT
from dlobd.network.channels.sockets import SocketsChannel
from dlobd.network.formation.address_book import ANSWER_S, FormationError
from dlobd.network.formation.pmi_wire import LINE_S, NotPmiError, Store, questions, reply
from dlobd.network.formation.reception import FOR_EVER_S, Reception

BARRIER_S = 60.0
"""How long ranks wait in a barrier. MPI has them at its begin and its end, where ranks have just met."""

_HELLO = struct.Struct("<IId")  # rank, ranks, within_s
_WHY_BYTES = 4096


class PmiServer:
    """The server. It is used once, and its threads end with `close`.

    Args:
        host: the address to listen on, one of this host's.
        ranks: how many there are.
        secret: of the run.

    Raises:
        SetupError: nothing can listen there.
    """

    def __init__(self, host: str, ranks: int, secret: bytes) -> None:
        self._ranks = ranks
        self._store = Store(f"dlobd-{secrets.token_hex(8)}", ranks)
        self._present: set[int] = set()
        self._gone: list[int] = []  # in the order in which they went without having finalised
        self._waiting: set[int] = set()  # in the barrier
        self._barriers = 0  # that all have passed
        self._changed = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._refused: deque[str] = deque(maxlen=REFUSED_KEPT)
        self._reception = Reception(host, secret, "dlobd-pmi")
        self._reception.start(self._serve)

    @property
    def address(self) -> str:
        """Where ranks find it."""
        return self._reception.address

    @property
    def refused(self) -> list[str]:
        """Who was refused, and why: one line each, the last hundred."""
        return [*self._reception.refused, *self._refused]

    def close(self) -> None:
        """Ends all connections: a rank that is inside of MPI's begin or end is aborted by MPI. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for each in self._sockets:
                _shut_down(each)
        self._reception.close()

    def _serve(self, connection: SocketsConnection) -> None:
        """One connection, until its rank has finalised, goes, or says what makes no sense."""
        rank, finalised = -1, False
        try:
            rank, within_s = self._register(connection)
            self._gather(within_s)
            connection.send(b"", time.monotonic() + LINE_S)
            finalised = self._speak(rank, connection)
        except NotPmiError as error:
            authentication.report(self.address, connection.peer, str(error))
            self._refused.append(f"{connection.peer}: {error}")
            _tell(connection, str(error))
        except FormationError as error:
            # one write, as other ranks' threads say the same
            sys.stderr.write(f"dlobd: {self.address}: rank {rank} waited for MPI in vain: {error}\n")
            _tell(connection, str(error))
        except (ChannelError, OSError):
            pass  # it has gone, which the others are told
        finally:
            with self._changed:
                if rank >= 0 and not finalised:
                    self._gone.append(rank)
                    self._changed.notify_all()

    def _register(self, connection: SocketsConnection) -> tuple[int, float]:
        """The rank, and how many seconds it can wait for the others."""
        memory = bytearray(_HELLO.size)
        try:
            size = connection.recv(memory, time.monotonic() + LINE_S)
        except MessageTooLong:
            size = 0
        if size != _HELLO.size:
            raise NotPmiError("it does not say which rank it is")
        rank, ranks, within_s = _HELLO.unpack(memory)
        if ranks != self._ranks or rank >= ranks:
            raise NotPmiError(f"it says that it is rank {rank} of {ranks}, and there are {self._ranks}")
        if not 0 <= within_s <= FOR_EVER_S:
            raise NotPmiError("it does not say how long it can wait")
        with self._changed:
            if rank in self._present:
                raise NotPmiError(f"rank {rank} has come before")
            self._present.add(rank)
            self._changed.notify_all()
        return rank, within_s

    def _gather(self, within_s: float) -> None:
        """Returns once all have come. Raises FormationError."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._present) == self._ranks or self._gone or self._closed, within_s)
            missing = sorted(set(range(self._ranks)) - self._present)
        if missing:
            raise FormationError(f"{_names(missing)} did not come in time")
        self._check()

    def _check(self) -> None:
        if self._closed:
            raise FormationError("the driver has closed its PMI server")
        if self._gone:
            raise FormationError(f"rank {self._gone[0]} is gone")

    def _speak(self, rank: int, connection: SocketsConnection) -> bool:
        """PMI, until the rank has finalised or goes; whether it has finalised."""
        with connection.detach() as connected:
            with self._changed:
                if self._closed:
                    return False
                self._sockets.append(connected)
            finalised = False
            for asked in questions(connected):
                if asked["cmd"] == "barrier_in":
                    self._barrier(rank, connected)
                    answer = "cmd=barrier_out rc=0"
                else:
                    with self._changed:
                        answer = self._store.answer(asked)
                finalised = asked["cmd"] == "finalize"
                reply(connected, answer)
            return finalised

    def _barrier(self, rank: int, connected: socket.socket) -> None:
        """Returns once all ranks are in it. Raises FormationError, and answers before that it has failed: of MPICH
        5.0.2 a rank that finds its connection closed instead dies of a segmentation fault."""
        try:
            self._meet(rank)
        except FormationError:
            reply(connected, "cmd=barrier_out rc=-1 msg=failed")
            raise

    def _meet(self, rank: int) -> None:
        with self._changed:
            self._waiting.add(rank)
            passed = self._barriers
            if len(self._waiting) == self._ranks:
                self._waiting.clear()
                self._barriers += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._barriers > passed or self._gone or self._closed, BARRIER_S)
            if self._barriers > passed:
                return
            self._check()
            missing = sorted(set(range(self._ranks)) - self._waiting)
        raise FormationError(f"{_names(missing)} did not come to a barrier of MPI within {BARRIER_S:g} s")


def connect_pmi(address: str, rank: int, ranks: int, secret: bytes, deadline_s: float) -> socket.socket:
    """A connection that speaks PMI, once all ranks have come: MPI takes its descriptor as PMI_FD, and PMI_RANK and
    PMI_SIZE beside it. It is the caller's to close, after MPI has ended.

    Args:
        address: of the server.
        deadline_s: a time of time.monotonic().

    Raises:
        FormationError: the server does not answer in time, does not know the secret or refuses this rank; or a rank did
            not come, which is named.
    """
    channel = SocketsChannel("tcp", "", secret)
    try:
        connection = channel.connect(address, deadline_s)
        connection.send(_HELLO.pack(rank, ranks, max(0.0, deadline_s - time.monotonic())), deadline_s)
        memory = bytearray(_WHY_BYTES)
        why = bytes(memory[: connection.recv(memory, deadline_s + ANSWER_S)]).decode()
        if why:
            raise FormationError(why)
        return connection.detach()
    except ChannelError as error:
        raise FormationError(f"rank {rank} cannot reach the driver's PMI server at {address}: {error}") from error
    finally:
        channel.close()


def _tell(connection: SocketsConnection, why: str) -> None:
    """Why it is refused; MPI cannot be told, as it would not understand."""
    try:
        connection.send(why.encode()[:_WHY_BYTES], time.monotonic() + LINE_S)
    except ChannelError:
        pass  # it does not listen, or speaks PMI by now


def _names(ranks: list[int]) -> str:
    return " and ".join(f"rank {rank}" for rank in ranks)


def _shut_down(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already
