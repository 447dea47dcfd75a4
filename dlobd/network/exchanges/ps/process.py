"""Process of a parameter server, `python -m dlobd.network.exchanges.ps.process`, and its handle in the parent.

The process starts fresh, without TensorFlow and its memory; its parent is one of the workers. It reads its
`ServerConfig` as one JSON line from stdin, prints its address on stdout, and ends once all workers have left or stdin
ends: the kernel closes stdin when the parent dies, for any reason. One thread per worker receives and sends; memory is
allocated once for each form of a call. `dlobd.network.exchanges.ps.servers` implements the servers.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import asdict, dataclass

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import ChannelError, Connection, OpenChannel
from dlobd.network.collectives.mesh import ExchangeFailed, accept_ranks
from dlobd.network.exchanges.ps.servers import END_S, TEXT_BYTES, AsynchronousServer, Server, SynchronousServer
from dlobd.network.verdict.evidence import Snapshot, record


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Configuration of a parameter server."""

    index: int  # number of this server
    workers: int  # ranks that push
    transport: str
    device: str  # address of its host
    library: str
    asynchronous: bool
    secret: str
    join_s: float  # timeout for its workers to connect
    within_s: float  # timeout for the last worker in a call
    spans_dir: str  # empty if it records no spans


class ServerProcess:
    """Process of a server that listens at `address` before the deadline.

    Raises ExchangeFailed: it does not listen in time, or has ended; its stderr has the reason.
    """

    def __init__(self, config: ServerConfig, deadline_s: float) -> None:
        self._name = f"ps-{config.index}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dlobd.network.exchanges.ps.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Spark extends sys.path of running processes
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self.address = self._start(config, deadline_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the process answer pending calls and end; kill it after a timeout. May be called twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(3 * END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _start(self, config: ServerConfig, deadline_s: float) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        try:
            os.write(self._process.stdin.fileno(), json.dumps(asdict(config)).encode() + b"\n")
            while not line.endswith(b"\n"):
                left_s = max(0.0, deadline_s - time.monotonic())
                if not select.select([self._process.stdout], [], [], left_s)[0]:
                    raise ExchangeFailed(f"{self._name} did not listen in time")
                if not (more := os.read(self._process.stdout.fileno(), 1 << 12)):
                    raise ExchangeFailed(f"{self._name} ended before it listened; see stderr of this rank")
                line += more
            return str(json.loads(line))
        except (BrokenPipeError, ValueError) as error:
            raise ExchangeFailed(f"{self._name} cannot be started: {error}") from error


def main() -> None:
    """Run the server that stdin describes."""
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return  # the parent is gone
    config = ServerConfig(**json.loads(line))
    if config.spans_dir:
        tracing.start(config.spans_dir, "ps", config.index)
    before = Snapshot.read()
    channel: OpenChannel = LIBRARIES.get(config.library)(config.transport, config.device, config.secret.encode())
    server: list[Server] = []  # filled once all workers have connected
    threading.Thread(target=_end_with_stdin, args=(channel, server), daemon=True).start()
    try:
        make = AsynchronousServer if config.asynchronous else SynchronousServer
        server.append(make(config.index, _accept_workers(channel, config), config.within_s))
        server[0].serve()
        traffic = channel.evidence()
        attrs = record(config.index, config.library, before, lanes=traffic.lanes, traffic=traffic, server=True)
        tracing.instant(kinds.TRANSPORT, **attrs)
    except (ChannelError, ExchangeFailed) as error:
        sys.exit(f"dlobd: ps-{config.index}: {error}")
    finally:
        channel.close()
        tracing.flush()


def _accept_workers(channel: OpenChannel, config: ServerConfig) -> dict[int, Connection]:
    workers: dict[int, Connection] = {}
    with closing(channel.listen()) as listener:
        print(json.dumps(listener.address), flush=True)
        accept_ranks(listener, range(config.workers), workers, time.monotonic() + config.join_s)
    return workers


def _end_with_stdin(channel: OpenChannel, server: list[Server]) -> None:
    """End this process when stdin ends. The parent has received its last sum then; other workers may still wait."""
    while os.read(0, TEXT_BYTES):  # sys.stdin would hold its lock when the interpreter ends
        pass
    for each in server:
        each.finish(END_S)
    channel.close()
    time.sleep(END_S)
    tracing.flush()
    os._exit(1)  # a thread is still running, although all its connections are closed


if __name__ == "__main__":
    main()
