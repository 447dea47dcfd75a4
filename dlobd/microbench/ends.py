"""Measures a channel between two processes: latency of a ping-pong, and bandwidth in one direction.

    python -m dlobd.microbench.ends PLAN             runs one end; the connecting end reads the address of
    the listening end from stdin

latency      half of the round trip of a message and its answer of the same size
bandwidth    messages in one direction, then an empty answer; WINDOW messages are in transit if the library makes
             progress in the background, as in UCX's own program, otherwise one message

A figure is a mean over `calls`, after `warm_up_calls`. Compare figures of several runs, not figures within a run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dlobd.axes import LIBRARIES
from dlobd.fields import decoded
from dlobd.microbench.hosts import Host, HostProcess
from dlobd.network.channels.base import Buffer, Connection, OpenChannel

PATIENCE_S = 60.0  # deadline of a measurement
WINDOW = 32  # default of `ucx_perftest` (option -O)
SECRET = b"of a micro-benchmark"


@dataclass(frozen=True, slots=True)
class Measure:
    """Measurement of latency or bandwidth with messages of one size."""

    what: str
    size_bytes: int
    calls: int
    warm_up_calls: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Measurements of one end, which runs on `core`."""

    library: str
    transport: str
    device: str
    listens: bool
    core: int
    measures: tuple[Measure, ...]


def measured(
    library: str, transport: str, device: str, hosts: Sequence[Host], measures: Sequence[Measure]
) -> dict[Measure, float]:
    """Return seconds by measure: the one-way time for a latency, the time per message for a bandwidth.

    Args:
        hosts: hosts of the two ends, which run on different cores.

    Raises SetupError: an end failed.
    """
    with ExitStack() as opened:
        ends = [
            opened.enter_context(
                HostProcess(
                    "dlobd.microbench.ends",
                    Plan(library, transport, device, rank == 0, rank, tuple(measures)),
                    host,
                    f"An end of {library} over {transport} failed",
                    PATIENCE_S,
                )
            )
            for rank, host in enumerate(hosts)
        ]
        ends[1].write(ends[0].line())
        seconds = json.loads(ends[1].line())
        for end in ends:
            end.ended()
    return dict(zip(measures, seconds, strict=True))


def main() -> None:
    """Run the end that the first argument describes."""
    plan: Plan = decoded(Plan, json.loads(sys.argv[1]))
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
    window = WINDOW if channel.capabilities.begins else 0
    seconds = [_measure(connection, plan.listens, measure, window, deadline_s) for measure in plan.measures]
    if not plan.listens:
        print(json.dumps(seconds), flush=True)
    _turn(connection, plan.listens, deadline_s)
    channel.close()


def _measure(connection: Connection, listens: bool, measure: Measure, window: int, deadline_s: float) -> float:
    message = np.ones(measure.size_bytes, np.uint8)
    into = np.empty(measure.size_bytes, np.uint8)
    run = _ping_pong if measure.what == "latency" else partial(_stream, window=window)
    run(connection, listens, message, into, measure.warm_up_calls, deadline_s)
    _turn(connection, listens, deadline_s)
    start_s = time.perf_counter()
    run(connection, listens, message, into, measure.calls, deadline_s)
    elapsed_s = time.perf_counter() - start_s
    return elapsed_s / measure.calls / (2 if measure.what == "latency" else 1)


def _ping_pong(
    connection: Connection, listens: bool, message: Buffer, into: Buffer, calls: int, deadline_s: float
) -> None:
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
    connection: Connection, listens: bool, message: Buffer, into: Buffer, calls: int, deadline_s: float, window: int
) -> None:
    if listens:
        for _ in range(calls):
            connection.recv(into, deadline_s)
        connection.send(b"", deadline_s)
        return
    pending: deque[Any] = deque()  # all messages are in the same memory, which does not change
    for _ in range(calls):
        if not window:
            connection.send(message, deadline_s)
        elif (send := connection.begin_send(message)) is not None:
            pending.append(send)
        if len(pending) > window:
            connection.finish_send(pending.popleft(), deadline_s)
    for send in pending:
        connection.finish_send(send, deadline_s)
    connection.recv(into, deadline_s)


def _turn(connection: Connection, listens: bool, deadline_s: float) -> None:
    _ping_pong(connection, listens, b"", bytearray(1), 1, deadline_s)


if __name__ == "__main__":
    main()
