"""PMI-1, by which the ranks of MPI find each other: a server in the driver, without mpiexec and ssh.

PMI does not authenticate, so a rank authenticates first (`dlobd.network.channels.authentication`), sends its rank,
and waits until all ranks have connected. From then on the same connection speaks PMI; MPI in the rank's process gets it
as the descriptor PMI_FD.

    rank r                                    server
      proof, rank, ranks, within_s     --->            one message per direction, over library sockets
               <--- "" or the reason of a refusal
      cmd=init ...                     --->            lines of text from here on: the wire protocol of PMI 1.1
               <--- cmd=response_to_init ...

The server implements the part of PMI 1.1 that the start and end of MPI need (`PmiServer._answer`).

Spawning processes and publishing names are not supported. Sources: RFC 13 of the Flux framework, "Simple Process
Manager Interface v1", and the requests of MPICH 5.0.2. MPI's own traffic is neither authenticated nor encrypted.
"""

import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from dlobd.network.channels import authentication
from dlobd.network.channels.base import ChannelError, MessageTooLong
from dlobd.network.channels.sockets import SocketsChannel, SocketsConnection
from dlobd.network.rendezvous.store import ANSWER_S, FOREVER_S, RankServer, RendezvousError, names

BARRIER_S = 60.0  # timeout of a barrier. MPI has barriers at its start and end.
LINE_BYTES = 4096  # maximum length of a line. Within the limits below the longest line, a `put`, has about 1400 bytes.
LINE_S = 5.0  # timeout for a rank that completes a line, or reads the answer

NAME_MAX, KEY_MAX, VALUE_MAX = 256, 64, 1024
"""Maximum lengths of names, keys and values, as in MPICH's own process manager; ranks can query them."""

KEYS = 1 << 16  # maximum number of keys, 70 MB. MPICH puts a few keys per rank.
_HELLO = struct.Struct("<IId")  # rank, ranks, within_s
_WHY_BYTES = 4096


class NotPmiError(Exception):
    """Violation of the protocol by a rank; the message is one line."""


class PmiServer(RankServer):
    """PMI server of one job."""

    thread_name = "dlobd-pmi"

    def __init__(self, host: str, ranks: int, secret: bytes) -> None:
        self._name = f"dlobd-{secrets.token_hex(8)}"  # unique among jobs, so that MPI does not mix them
        self._values: dict[str, str] = {}
        self._waiting: set[int] = set()  # ranks in the barrier
        self._barriers = 0  # number of completed barriers
        self._sockets: list[socket.socket] = []
        super().__init__(host, ranks, secret)

    def close(self) -> None:
        """End all connections: MPI aborts a rank that is starting or ending MPI. May be called twice."""
        with self._changed:
            self._closed = True
            for connected in self._sockets:
                with suppress(OSError):  # closed already
                    connected.shutdown(socket.SHUT_RDWR)
        super().close()

    def _serve(self, connection: SocketsConnection) -> None:
        rank, finalised = -1, False
        try:
            rank, within_s = self._register(connection)
            self._wait_for_all(within_s)
            connection.send(b"", time.monotonic() + LINE_S)
            finalised = self._speak_pmi(rank, connection)
        except NotPmiError as error:
            authentication.report(self.address, connection.peer, str(error))
            self.refused.append(f"{connection.peer}: {error}")
            _send_reason(connection, str(error))
        except RendezvousError as error:
            # a single write, because other threads log too
            sys.stderr.write(f"dlobd: {self.address}: rank {rank} could not start MPI: {error}\n")
            _send_reason(connection, str(error))
        except (ChannelError, OSError):
            pass  # the rank is gone; `_dead` makes its peers fail
        finally:
            if not finalised:
                self._add_dead(rank)

    def _register(self, connection: SocketsConnection) -> tuple[int, float]:
        memory = bytearray(_HELLO.size)
        try:
            size = connection.recv(memory, time.monotonic() + LINE_S)
        except MessageTooLong:
            size = 0
        if size != _HELLO.size:
            raise NotPmiError("its first message is invalid")
        rank, ranks, within_s = _HELLO.unpack(memory)
        if ranks != self._ranks or rank >= ranks:
            raise NotPmiError(f"it claims to be rank {rank} of {ranks}, but the job has {self._ranks} ranks")
        if not 0 <= within_s <= FOREVER_S:
            raise NotPmiError("its timeout is invalid")
        with self._changed:
            if rank in self._present:
                raise NotPmiError(f"rank {rank} has connected before")
            self._present.add(rank)
            self._changed.notify_all()
        return rank, within_s

    def _wait_for_all(self, within_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._present) == self._ranks or self._dead or self._closed, within_s)
            missing = sorted(set(range(self._ranks)) - self._present)
        if missing:
            raise RendezvousError(f"{names(missing)} did not connect in time")
        self._check()

    def _check(self) -> None:
        if self._closed:
            raise RendezvousError("the driver has closed its PMI server")
        if self._dead:
            raise RendezvousError(f"rank {self._dead[0]} is gone")

    def _speak_pmi(self, rank: int, connection: SocketsConnection) -> bool:
        """Answer requests until the rank leaves; return True if it has finalised."""
        with connection.detach() as connected:
            with self._changed:
                if self._closed:
                    return False
                self._sockets.append(connected)
            finalised = False
            for request in requests(connected):
                if request["cmd"] == "barrier_in":
                    self._barrier(rank, connected)
                    answer = "cmd=barrier_out rc=0"
                else:
                    with self._changed:
                        answer = self._answer(request)
                finalised = request["cmd"] == "finalize"
                reply(connected, answer)
            return finalised

    def _barrier(self, rank: int, connected: socket.socket) -> None:
        """Wait for all ranks. Answer a failure before the connection closes: MPICH 5.0.2 segfaults otherwise."""
        try:
            with self._changed:
                self._waiting.add(rank)
                passed = self._barriers
                if len(self._waiting) == self._ranks:
                    self._waiting.clear()
                    self._barriers += 1
                    self._changed.notify_all()
                self._changed.wait_for(lambda: self._barriers > passed or self._dead or self._closed, BARRIER_S)
                if self._barriers > passed:
                    return
                self._check()
                missing = sorted(set(range(self._ranks)) - self._waiting)
            raise RendezvousError(f"{names(missing)} did not reach a barrier of MPI within {BARRIER_S:g} s")
        except RendezvousError:
            reply(connected, "cmd=barrier_out rc=-1 msg=failed")
            raise

    def _answer(self, request: dict[str, str]) -> str:
        """Return the answer to a request that needs no other rank, with the lock held."""
        match request["cmd"]:
            case "init":
                if (version := request.get("pmi_version")) != "1":
                    raise NotPmiError(f"it speaks PMI version {version!r:.40}, but this server speaks version 1")
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return f"cmd=maxes kvsname_max={NAME_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX} rc=0"
            case "get_appnum":
                return "cmd=appnum appnum=0 rc=0"
            case "get_universe_size":
                return f"cmd=universe_size size={self._ranks} rc=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self._name} rc=0"
            case "put":
                key, value = self._key(request), request.get("value", "")
                if len(value) > VALUE_MAX or (len(self._values) >= KEYS and key not in self._values):
                    raise NotPmiError(f"it puts more than {KEYS} values, or a value of more than {VALUE_MAX} bytes")
                self._values[key] = value
                return "cmd=put_result rc=0 msg=success"
            case "get":
                if (found := self._values.get(self._key(request))) is None:
                    return "cmd=get_result rc=-1 msg=key_not_found"
                return f"cmd=get_result rc=0 value={found}"
            case "finalize":
                return "cmd=finalize_ack rc=0"
            case command:
                raise NotPmiError(f"it sends command {command!r:.40}, which this server does not support")

    def _key(self, request: dict[str, str]) -> str:
        key = request.get("key", "")
        if request.get("kvsname") != self._name or not 0 < len(key) <= KEY_MAX:
            raise NotPmiError(f"it uses a key that is invalid in this job: {key!r:.40}")
        return key


def requests(connected: socket.socket) -> Iterator[dict[str, str]]:
    """Yield the requests of a rank until it closes. A rank may be silent for as long as it computes.

    Raises NotPmiError: a line is too long, too slow, or invalid; OSError: the rank is gone.
    """
    received = b""
    readable = select.poll()
    readable.register(connected, select.POLLIN)
    until_s = 0.0
    while True:
        line, end, rest = received.partition(b"\n")
        if end:
            received = rest
            yield _parse(line)
            continue
        if len(received) >= LINE_BYTES:
            raise NotPmiError(f"it sends a line of more than {LINE_BYTES} bytes")
        if not received:
            readable.poll()
            until_s = time.monotonic() + LINE_S
        elif not readable.poll(max(0.0, until_s - time.monotonic()) * 1000):
            raise NotPmiError(f"it did not complete a line within {LINE_S:g} s")
        more = connected.recv(LINE_BYTES - len(received))
        if not more:
            return
        received += more


def reply(connected: socket.socket, answer: str) -> None:
    """Send one line. Raises OSError: the rank is gone, or does not read it within LINE_S."""
    connected.settimeout(LINE_S)
    connected.sendall(answer.encode("ascii", "replace") + b"\n")


def connect_pmi(address: str, rank: int, ranks: int, secret: bytes, deadline_s: float) -> socket.socket:
    """Return a connection that speaks PMI, once all ranks have connected.

    MPI takes its descriptor as PMI_FD, together with PMI_RANK and PMI_SIZE. The caller closes it after MPI has ended.
    Raises RendezvousError: the server is late, does not have the secret, refuses this rank, or reports a missing rank.
    """
    channel = SocketsChannel("tcp", "", secret)
    try:
        connection = channel.connect(address, deadline_s)
        connection.send(_HELLO.pack(rank, ranks, max(0.0, deadline_s - time.monotonic())), deadline_s)
        memory = bytearray(_WHY_BYTES)
        why = bytes(memory[: connection.recv(memory, deadline_s + ANSWER_S)]).decode()
        if why:
            raise RendezvousError(why)
        return connection.detach()
    except ChannelError as error:
        raise RendezvousError(f"rank {rank} cannot reach the driver's PMI server at {address}: {error}") from error
    finally:
        channel.close()


def _parse(line: bytes) -> dict[str, str]:
    """Parse NAME=VALUE words; values contain no spaces."""
    try:
        words = dict(word.split("=", 1) for word in line.decode("ascii").split())
    except ValueError:
        words = {}
    if "cmd" not in words:
        raise NotPmiError("it does not speak PMI")
    return words


def _send_reason(connection: SocketsConnection, why: str) -> None:
    """Send the reason of a refusal, unless the connection speaks PMI already, because MPI could not parse it."""
    with suppress(ChannelError):  # the client is gone, or the socket is detached
        connection.send(why.encode()[:_WHY_BYTES], time.monotonic() + LINE_S)
