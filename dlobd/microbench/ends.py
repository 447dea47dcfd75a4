"""A channel between two processes: latency of a ping-pong, and bandwidth one way.

    python -m dlobd.microbench.ends PLAN             one end; the address of the listening one goes in by stdin

latency      a message goes there and one of the same size comes back: half of the time of a round trip
bandwidth    messages go there, and an empty one comes back at the end; where a library moves on what was begun, WINDOW
             of them are under way at once, as in UCX's own program, and else they go one after the other

Each figure is a mean over `calls`, after `warm_up_calls` that do not count. Figures of several runs are compared, not
figures within one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from dlobd.axes import LIBRARIES
from dlobd.errors import SetupError
from dlobd.microbench.hosts import Host
from dlobd.network.channels.base import Connection, OpenChannel

PATIENCE_S = 60.0
"""For the whole of a measurement; a call that takes longer has failed."""

WINDOW = 32
"""Of `ucx_perftest`, unless it is told otherwise (option -O)."""

SECRET = b"of a micro-benchmark"


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured: latency or bandwidth, of messages of so many bytes."""

    what: str
    size_bytes: int
    calls: int
    warm_up_calls: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What one end does. `core` is that on which it runs."""

    library: str
    transport: str
    device: str
    listens: bool
    core: int
    measures: tuple[Measure, ...]


def measured(
    library: str, transport: str, device: str, hosts: Sequence[Host], measures: Sequence[Measure]
) -> dict[Measure, float]:
    """Seconds one way of each latency, and of each message of each bandwidth.

    Args:
        hosts: of the two ends; each runs on a core of its own.

    Raises:
        SetupError: an end has failed, which is told in one line.
    """
    with ExitStack() as opened:
        ends = [
            opened.enter_context(_End(Plan(library, transport, device, rank == 0, rank, tuple(measures)), host))
            for rank, host in enumerate(hosts)
        ]
        ends[1].tell(ends[0].line())
        found = json.loads(ends[1].line())
        for end in ends:
            end.ended()
    return dict(zip(measures, found, strict=True))


class _End:
    """A process, ended with the block."""

    def __init__(self, plan: Plan, host: Host) -> None:
        self._name = f"{plan.library} over {plan.transport}"
        self._process = subprocess.Popen(
            [*host.command, sys.executable, "-m", "dlobd.microbench.ends", json.dumps(asdict(plan))],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _End:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    def tell(self, line: str) -> None:
        """Hands a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line that it says. Its calls have deadlines, so that it ends."""
        assert self._process.stdout is not None
        if not (said := self._process.stdout.readline().strip()):
            self._fail()
        return said

    def ended(self) -> None:
        """Waits for its end."""
        if self._process.wait(PATIENCE_S):
            self._fail()

    def _fail(self) -> None:
        assert self._process.stderr is not None
        self._process.kill()
        why = self._process.stderr.read().strip().splitlines()[-1:] or ["it said nothing"]
        raise SetupError(f"An end of {self._name} failed: {why[0]}", "dlobd doctor")


def main() -> None:
    """See the module."""
    values: Mapping[str, Any] = json.loads(sys.argv[1])
    plan = Plan(**{**values, "measures": tuple(Measure(**each) for each in values["measures"])})
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[plan.core % len(cores)]})
    deadline_s = time.monotonic() + PATIENCE_S
    channel: OpenChannel = LIBRARIES.get(plan.library)(plan.transport, plan.device, SECRET)
    if plan.listens:
        listener = channel.listen()
        print(listener.address, flush=True)
        connection = listener.accept(deadline_s)
    else:
        connection = channel.connect(sys.stdin.readline().strip(), deadline_s)
    window = WINDOW if channel.capabilities.moves else 0
    found = [_measure(connection, plan.listens, each, window, deadline_s) for each in plan.measures]
    if not plan.listens:
        print(json.dumps(found), flush=True)
    _turn(connection, plan.listens, deadline_s)
    channel.close()


def _measure(connection: Connection, listens: bool, measure: Measure, window: int, deadline_s: float) -> float:
    message = np.ones(measure.size_bytes, np.uint8)
    into = np.empty(measure.size_bytes, np.uint8)
    run = _ping_pong if measure.what == "latency" else partial(_stream, window=window)
    run(connection, listens, message, into, measure.warm_up_calls, deadline_s)
    _turn(connection, listens, deadline_s)
    began_s = time.perf_counter()
    run(connection, listens, message, into, measure.calls, deadline_s)
    took_s = time.perf_counter() - began_s
    return took_s / measure.calls / (2 if measure.what == "latency" else 1)


def _ping_pong(connection: Connection, listens: bool, message: Any, into: Any, calls: int, deadline_s: float) -> None:
    send, recv = connection.send, connection.recv
    if listens:
        for _ in range(calls):
            recv(into, deadline_s)
            send(message, deadline_s)
    else:
        for _ in range(calls):
            send(message, deadline_s)
            recv(into, deadline_s)


def _stream(
    connection: Connection, listens: bool, message: Any, into: Any, calls: int, deadline_s: float, window: int
) -> None:
    if listens:
        for _ in range(calls):
            connection.recv(into, deadline_s)
        connection.send(b"", deadline_s)
        return
    under_way: deque[Any] = deque()  # all of the same memory, which nobody changes
    for _ in range(calls):
        if not window:
            connection.send(message, deadline_s)
        elif (begun := connection.begin_send(message)) is not None:
            under_way.append(begun)
        if len(under_way) > window:
            connection.finish_send(under_way.popleft(), deadline_s)
    for begun in under_way:
        connection.finish_send(begun, deadline_s)
    connection.recv(into, deadline_s)


def _turn(connection: Connection, listens: bool, deadline_s: float) -> None:
    """Both ends are here."""
    _ping_pong(connection, listens, b"", bytearray(1), 1, deadline_s)


if __name__ == "__main__":
    main()
