"""Open and closed loops of the micro-benchmarks with a planted stall."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from dlobd.axes import LIBRARIES
from dlobd.micro import loops, samples
from dlobd.micro.loops import Link
from dlobd.micro.payload import payload
from dlobd.micro.plan import Point
from dlobd.micro.use import Meter

pytestmark = pytest.mark.timeout(400)


class Stalling:
    """Listening connection that sleeps before the first message after each period."""

    def __init__(self, connection: Any, period_s: float, stall_s: float) -> None:
        self._connection, self._period_s, self._stall_s = connection, period_s, stall_s
        self._due_s = time.monotonic() + period_s - stall_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, into: Any, deadline_s: float) -> int:
        size: int = self._connection.recv(into, deadline_s)
        if size != loops.ORDER.size and time.monotonic() >= self._due_s:
            time.sleep(max(0.0, self._due_s + self._stall_s - time.monotonic()))
            self._due_s += self._period_s
        return size


@pytest.mark.parametrize("library", ["sockets", "grpc", "ucx"])
def test_an_open_loop_measures_a_planted_stall(library: str) -> None:
    """The other end stalls for 1 s in every 10 s: a tenth of the arrivals wait for up to 1 s, evenly distributed, so
    that p99 is 0.9 s. The closed loop omits the waiting calls: its p99 is that of a call without a stall."""
    if reason := LIBRARIES.row(library).reason():
        pytest.skip(reason)
    transport = "shm" if library == "ucx" else "tcp"
    period_s, stall_s = 10.0, 1.0
    deadline_s = time.monotonic() + 300
    listening, connecting = (LIBRARIES.get(library)(transport, "", b"secret") for _ in range(2))
    accepted: list[Any] = []
    listener = listening.listen()
    thread = threading.Thread(target=lambda: accepted.append(listener.accept(deadline_s)))
    thread.start()
    connection = connecting.connect(listener.address, deadline_s)
    thread.join()
    served = Link(Stalling(accepted[0], period_s, stall_s), False, deadline_s, Meter())  # type: ignore[arg-type]
    link = Link(connection, False, deadline_s, Meter())
    seconds = 4 * period_s
    try:
        p99 = {}
        for name, rate in (("open", 60.0), ("closed", 0.0)):
            chosen = Point("latency", payload("64"), seconds=seconds, rate=rate, warm_up_s=0.0, seed=4)
            thread = threading.Thread(target=loops.serve, args=(served, chosen))
            thread.start()
            times_ns = loops.measure(link, chosen).times_ns
            thread.join()
            found = samples.summary(times_ns, open_loop=bool(rate))
            assert found
            p99[name] = found.p99
    finally:
        connecting.close()
        listening.close()
    assert p99["open"] == pytest.approx(0.9 * stall_s * 1e9, rel=0.1)
    assert p99["closed"] < 0.1 * stall_s * 1e9
