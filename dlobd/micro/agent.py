"""Agents: processes on other hosts that start the processes of launches for a coordinator.

    coordinator                                agent
             <--- {"host", "address", "version"}       the connection is authenticated: see
      {"start": id, "role": ...}         --->          `dlobd.network.channels.authentication`
      {"to": id, "message": ...}         --->
             <--- {"from": id, "message": ...}         messages of `dlobd.micro.end`
      {"stop": id}                       --->

An agent listens (`dlobd micro serve`), or connects to the coordinator from a barrier task of Spark, one per executor:
barrier mode starts all tasks at once, or none, and nothing is installed on the nodes beyond what Spark's Python needs.
It stops its processes when the connection ends. Messages are JSON over library sockets; nothing is unpickled.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from typing import Any

from dlobd import __version__
from dlobd.errors import SetupError
from dlobd.fields import decoded, plain
from dlobd.micro.plan import Role
from dlobd.micro.processes import EndProcess, Received
from dlobd.network.channels.base import ChannelError, Connection
from dlobd.network.channels.ip import parse_address
from dlobd.network.channels.sockets import LIBRARY, SocketsChannel
from dlobd.tracing.clock import host_name

CONNECT_S = 20.0
EXECUTORS_S = 180.0  # time for the cluster to provide the executors
FOREVER_S = 7 * 86400.0
ANSWER_S = 60.0
MOST_BYTES = 1 << 30
LENGTH_BYTES = 8


class Wire:
    """Connection that carries JSON messages. Any thread may send; one thread receives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        text = json.dumps(plain(message)).encode()
        with self._sending:
            deadline_s = time.monotonic() + ANSWER_S
            self._connection.send(len(text).to_bytes(LENGTH_BYTES, "little"), deadline_s)
            self._connection.send(text, deadline_s)

    def recv(self, within_s: float = FOREVER_S) -> Any:
        """Return the next message. Raises ChannelError: the other end is gone, silent, or sends no message."""
        deadline_s = time.monotonic() + within_s
        length = bytearray(LENGTH_BYTES)
        self._connection.recv(length, deadline_s)
        if (size := int.from_bytes(length, "little")) > MOST_BYTES:
            raise ChannelError(f"{self._connection.peer} announced a message of {size} bytes")
        text = bytearray(size)
        self._connection.recv(text, time.monotonic() + ANSWER_S)
        return json.loads(text)

    def close(self) -> None:
        self._connection.close()


# ---- the agent


def serve(wire: Wire, address: str) -> None:
    """Start processes for a coordinator until its connection ends. `address`: this host's, for other processes."""
    processes: dict[int, EndProcess] = {}

    def forward(number: int) -> Received:
        def received(message: dict[str, Any]) -> None:
            with suppress(ChannelError):  # the coordinator is gone, which ends the loop below
                wire.send({"from": number, "message": message})

        return received

    try:
        wire.send({"host": host_name(), "address": address, "version": __version__})
        while True:
            message = wire.recv()
            if "start" in message:
                number = message["start"]
                processes[number] = EndProcess(decoded(Role, message["role"]), forward(number))
            elif "to" in message:
                processes[message["to"]].send(message["message"])
            elif "stop" in message and (process := processes.pop(message["stop"], None)):
                process.stop()
    except ChannelError:
        pass
    finally:
        for process in processes.values():
            process.stop()
        wire.close()


def listen(device: str, secret: bytes, ready: Callable[[str], None]) -> None:
    """Serve coordinators that connect, one after the other, until the process is interrupted.

    Args:
        device: interface, address or network to listen on; empty for loopback.
        ready: gets the address HOST:PORT.
    """
    with closing(SocketsChannel("tcp", device, secret)) as channel:
        listener = channel.listen()
        host, port = parse_address(LIBRARY, listener.address)
        ready(f"{host}:{port}")
        while True:
            serve(Wire(listener.accept(time.monotonic() + FOREVER_S)), host)


def serve_from_task(address: str, secret: bytes) -> None:
    """Connect to a coordinator from a task of an executor, and serve it until it ends."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    own = context.getTaskInfos()[context.partitionId()].address.partition(":")[0]
    with closing(SocketsChannel("tcp", "", secret)) as channel:
        serve(Wire(channel.connect(address, time.monotonic() + CONNECT_S)), socket.gethostbyname(own))


# ---- the coordinator


@dataclass(slots=True)
class RemoteProcess:
    """Process that an agent has started."""

    number: int
    site: RemoteSite

    def send(self, message: Any) -> None:
        self.site.request({"to": self.number, "message": message})

    def stop(self) -> None:
        self.site.stop(self.number)


@dataclass(slots=True)
class RemoteSite:
    """Host of an agent."""

    wire: Wire
    name: str
    address: str
    _numbers: count[int] = field(default_factory=count)
    _received: dict[int, Received] = field(default_factory=dict)
    _lost: str = ""

    def start(self, role: Role, received: Received) -> RemoteProcess:
        process = RemoteProcess(next(self._numbers), self)
        self._received[process.number] = received
        self.request({"start": process.number, "role": role})
        if self._lost:
            received({"gone": self._lost, "code": 1})
        return process

    def request(self, message: Any) -> None:
        with suppress(ChannelError):  # the reading thread reports it
            self.wire.send(message)

    def stop(self, number: int) -> None:
        self._received.pop(number, None)
        self.request({"stop": number})

    def read(self) -> None:
        """Pass on messages until the connection ends."""
        try:
            while True:
                message = self.wire.recv()
                if received := self._received.get(message["from"]):
                    received(message["message"])
        except ChannelError as error:
            self._lost = f"the agent on {self.name} is gone: {error}"
            for received in list(self._received.values()):
                received({"gone": self._lost, "code": -1})


def site(connection: Connection) -> RemoteSite:
    """Return the site of a connected agent. Raises SetupError: it has another version, or does not answer."""
    wire = Wire(connection)
    try:
        hello = wire.recv(CONNECT_S)
    except ChannelError as error:
        raise SetupError(f"The agent at {connection.peer} does not answer: {error}.", "dlobd micro serve") from error
    if hello["version"] != __version__:
        wire.close()
        what = f"The agent on {hello['host']} has dlobd {hello['version']}, and this machine has {__version__}."
        raise SetupError(what, "install the same version on all hosts")
    found = RemoteSite(wire, hello["host"], hello["address"])
    threading.Thread(target=found.read, name=f"dlobd-agent-{found.name}", daemon=True).start()
    return found


def connect(address: str, secret: bytes) -> RemoteSite:
    """Connect to an agent at HOST:PORT. Raises SetupError: it is missing, or refuses the secret."""
    channel = SocketsChannel("tcp", "", secret)
    try:
        return site(channel.connect(f"{LIBRARY}:{address}", time.monotonic() + CONNECT_S))
    except (ChannelError, ValueError) as error:
        raise SetupError(f"No agent at {address}: {error}.", "start `dlobd micro serve` on each host") from error


@contextmanager
def spark_sites(count: int) -> Iterator[list[RemoteSite]]:
    """Yield the sites of `count` tasks, neighbours on different hosts as far as possible.

    Raises SetupError: the cluster does not provide the executors, or Spark fails.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("dlobd micro").getOrCreate()
    context, secret = session.sparkContext, secrets.token_bytes(16)
    channel = SocketsChannel("tcp", "", secret)
    listener = channel.listen(socket.gethostbyname(context.getConf().get("spark.driver.host")))
    failed: list[str] = []
    address = listener.address

    def task(_: Iterator[Any]) -> Iterator[int]:
        from dlobd.micro.agent import serve_from_task

        serve_from_task(address, secret)
        return iter(())

    def submit() -> None:
        try:
            context.parallelize(range(count), count).barrier().mapPartitions(task).collect()
        except Exception as error:  # noqa: BLE001  its message goes to the user
            failed.append(str(error).strip().splitlines()[0])

    thread = threading.Thread(target=submit, name="dlobd-micro-tasks", daemon=True)
    thread.start()
    until_s = time.monotonic() + EXECUTORS_S
    found: list[RemoteSite] = []
    try:
        while len(found) < count:
            try:
                found.append(site(listener.accept(min(until_s, time.monotonic() + 1))))
            except ChannelError as error:
                why = failed[0] if failed else f"{len(found)} of {count} tasks started within {EXECUTORS_S:.0f} s"
                if failed or time.monotonic() > until_s:
                    what = f"Spark did not start {count} barrier tasks: {why}."
                    raise SetupError(what, "request as many executors, with a free core each") from error
        yield spread(found)
    finally:
        channel.close()
        thread.join(10)
        session.stop()


def default_channels(sites: Sequence[RemoteSite]) -> tuple[str, ...]:
    """Return tcp over the smallest network that has the addresses of all hosts; on one host, tcp and shm."""
    addresses = {IPv4Address(one.address) for one in sites}
    if len({one.name for one in sites}) == 1:
        return "tcp", "shm"
    network = IPv4Network(f"{min(addresses)}/32")
    while not all(address in network for address in addresses):
        network = network.supernet()
    return (f"tcp@{network}",)


def one_host(sites: Sequence[RemoteSite]) -> str:
    """Return a remark if all sites are on one host; otherwise an empty text."""
    names = sorted({one.name for one in sites})
    return "" if len(names) > 1 else f"One host only: all {len(sites)} processes are on {names[0]}."


def spread(sites: list[RemoteSite]) -> list[RemoteSite]:
    """Order sites so that neighbours are on different hosts as far as possible: one of each host, then the second of
    each host."""
    seen: dict[str, int] = {}
    ranked = []
    for one in sorted(sites, key=lambda one: one.name):
        ranked.append((seen.setdefault(one.name, 0), one.name, one))
        seen[one.name] += 1
    return [one for _, _, one in sorted(ranked, key=lambda row: row[:2])]
