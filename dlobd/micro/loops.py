"""Loops of two ends: the connecting end measures, the listening end serves.

Before each batch, the connecting end sends an order: the number of messages, whether they are recorded, and the phase.
The listening end answers when it is ready. Every message is verified after the timed section of its batch, or between
the calls of a ping-pong. An order of zero messages ends the point.

    latency         one call = message and echo; closed loop, or open loop with Poisson arrivals
    bandwidth       one batch = messages in one direction, at most `window` in flight, and the answer
    bidirectional   the same, with as many messages back at the same time
    put, get        one call = access to the memory of the listening end
    replay          one batch = the recorded messages of one exchange

An open loop measures a call from its intended start: a stall delays all calls that were due meanwhile. A closed loop
omits them (coordinated omission).
"""

import itertools
import random
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dlobd.micro.messages import Carrier, Content, Message
from dlobd.micro.plan import Point
from dlobd.micro.use import Meter
from dlobd.network.channels.base import Connection

ORDER = struct.Struct("<QQ")  # number of messages of the batch; 1 if they are recorded
FIRST_CALLS = 4  # calls of the first batch of a closed loop
BATCH_S = 0.02  # duration to which a batch of calls grows
ANSWER_BYTES = 8
SPIN_S = 50e-6  # an open loop sleeps until this long before the start of a call, and then polls the clock
KEY_BYTES = 4096  # maximum length of a key of registered memory


class Link:
    """Connection of a loop, with the orders of its batches."""

    def __init__(self, connection: Connection, begins: bool, deadline_s: float, meter: Meter) -> None:
        self.connection, self.begins, self.deadline_s, self.meter = connection, begins, deadline_s, meter
        self._order, self._answer = bytearray(ORDER.size), bytearray(ANSWER_BYTES)

    def order(self, messages: int, recorded: bool = True) -> None:
        """Announce a batch, and wait until the other end is ready; 0 messages end the point."""
        self.connection.send(ORDER.pack(messages, recorded), self.deadline_s)
        if messages:
            self.answered()

    def orders(self) -> Iterator[tuple[int, bool]]:
        """Yield the batches of a point. The loop must call `answer` when it is ready."""
        while True:
            self.connection.recv(self._order, self.deadline_s)
            messages, recorded = ORDER.unpack(self._order)
            if not messages:
                return
            yield messages, bool(recorded)

    def answer(self, value: int = 0) -> None:
        self.connection.send(value.to_bytes(ANSWER_BYTES, "little"), self.deadline_s)

    def answered(self) -> int:
        self.connection.recv(self._answer, self.deadline_s)
        return int.from_bytes(self._answer, "little")

    @contextmanager
    def metered(self, messages: int, recorded: bool) -> Iterator[None]:
        """Measure the resource use of a timed section, if it is recorded."""
        if recorded:
            self.meter.start()
        yield
        if recorded:
            self.meter.stop(messages)


@dataclass
class Samples:
    """Times of the recorded calls or batches of a point, and the number of messages that failed verification.

    batches_ns: time of each batch of calls to parameter servers.
    """

    bad: int = 0
    times_ns: list[int] = field(default_factory=list)
    batches_ns: list[int] = field(default_factory=list)


def measure(link: Link, point: Point) -> Samples:
    """Run the connecting end of a point."""
    samples = Samples()
    _LOOPS[point.benchmark][0](link, point, samples)
    link.order(0)
    return samples


def serve(link: Link, point: Point) -> Samples:
    """Run the listening end of a point, which has no times."""
    return Samples(_LOOPS[point.benchmark][1](link, point))


def _phases(point: Point) -> Iterator[bool]:
    """Yield True for a recorded batch and False for warm-up, until the duration is reached."""
    until_s = time.monotonic() + point.warm_up_s
    while time.monotonic() < until_s:
        yield False
    until_s = time.monotonic() + point.seconds
    while True:
        yield True
        if time.monotonic() >= until_s:
            return


# ---- latency


def _ping_pongs(link: Link, point: Point, samples: Samples) -> None:
    carrier, content = Carrier(link.connection, point.payload, link.deadline_s), Content(point.payload)
    message, into = Message(point.payload), Message(point.payload)
    content.write(message, 0)
    number = 0

    def call(start_ns: int) -> int:
        """Send and receive; return the time since a start, and verify the echo."""
        nonlocal number
        number += 1
        content.number(message, number)
        begin_ns = start_ns or clock()
        carrier.send(message)
        carrier.recv(into)
        time_ns = clock() - begin_ns
        with link.meter.paused():
            samples.bad += content.wrong(into, number)
        return time_ns

    clock, calls = time.perf_counter_ns, FIRST_CALLS
    if point.rate:
        starts_ns = list(_arrivals(point))
        if not starts_ns:
            return  # an order of 0 messages would end the point twice
        link.order(len(starts_ns))
        with link.metered(len(starts_ns), recorded=True):
            zero_ns = clock()
            for start_ns in starts_ns:
                _wait_until(zero_ns + start_ns)
                samples.times_ns.append(call(zero_ns + start_ns))
        return
    for recorded in _phases(point):
        link.order(calls, recorded)
        begin_ns = clock()
        with link.metered(calls, recorded):
            times_ns = [call(0) for _ in range(calls)]
        if recorded:
            samples.times_ns += times_ns
        if clock() - begin_ns < BATCH_S * 1e9:
            calls *= 2


def _arrivals(point: Point) -> Iterator[int]:
    """Yield the start of each call of a Poisson process, in nanoseconds."""
    drawn, at_s = random.Random(point.seed), 0.0
    while (at_s := at_s + drawn.expovariate(point.rate)) < point.seconds:
        yield round(at_s * 1e9)


def _wait_until(start_ns: int) -> None:
    if (left_s := (start_ns - time.perf_counter_ns()) / 1e9) > SPIN_S:
        time.sleep(left_s - SPIN_S)
    while time.perf_counter_ns() < start_ns:
        pass


def _echoes(link: Link, point: Point) -> int:
    carrier, into = Carrier(link.connection, point.payload, link.deadline_s), Message(point.payload)
    for count, recorded in link.orders():
        link.answer()
        with link.metered(count, recorded):
            for _ in range(count):
                carrier.recv(into)
                carrier.echo(into)
    return 0  # the connecting end verifies the echoes


# ---- streams


class _Stream:
    """Batch of messages between two ends: outgoing messages with their content, and memory for incoming messages.

    A replay has one buffer per message, of the recorded size.
    """

    def __init__(self, link: Link, point: Point) -> None:
        payloads = [point.payload] * point.messages
        if point.benchmark == "replay":
            payloads = [replace(point.payload, sizes=(size,)) for size in point.payload.sizes]
        carried = {
            each: (Carrier(link.connection, each, link.deadline_s), Content(each)) for each in dict.fromkeys(payloads)
        }
        self._slots = [(*carried[each], Message(each), Message(each)) for each in payloads]
        for number, (_, content, message, _) in enumerate(self._slots):
            content.write(message, number)
        self.count = len(payloads)
        self._announced = min(point.window, self.count)
        self._window = self._announced if link.begins else 0

    def send(self) -> None:
        pending: deque[tuple[Carrier, Any]] = deque()
        for carrier, _, message, _ in self._slots:
            if not self._window:
                carrier.send(message)
                continue
            if len(pending) == self._window:
                _finish(pending)
            if (begun := carrier.begin(message)) is not None:
                pending.append((carrier, begun))
        while pending:
            _finish(pending)

    def recv(self) -> None:
        """Receive a batch; the memory of at most `window` messages is announced before they arrive."""
        announced: deque[Any] = deque()
        ahead = iter(self._slots)
        for carrier, _, _, message in self._slots:
            for other, _, _, later in itertools.islice(ahead, self._announced - len(announced)):
                announced.append(other.begin_recv(later))
            carrier.finish_recv(message, announced.popleft())

    def bad(self) -> int:
        """Verify the received messages; return the number of wrong ones."""
        return sum(content.wrong(message, number) for number, (_, content, _, message) in enumerate(self._slots))


def _finish(pending: deque[tuple[Carrier, Any]]) -> None:
    carrier, begun = pending.popleft()
    carrier.finish(begun)


def _both(stream: _Stream) -> None:
    """Send and receive a batch at once."""
    with ThreadPoolExecutor(1, "dlobd-micro-send") as pool:
        sent = pool.submit(stream.send)
        stream.recv()
        sent.result()


def _streams(link: Link, point: Point, samples: Samples) -> None:
    stream, both = _Stream(link, point), point.benchmark == "bidirectional"
    for recorded in _phases(point):
        link.order(stream.count, recorded)
        time.sleep(point.pause_ns / 1e9)
        with link.metered(stream.count, recorded):
            start_ns = time.perf_counter_ns()
            if both:
                _both(stream)
            else:
                stream.send()
            link.answered()
            time_ns = time.perf_counter_ns() - start_ns
        if recorded:
            samples.times_ns.append(time_ns)
        samples.bad += (stream.bad() if both else 0) + link.answered()


def _received_streams(link: Link, point: Point) -> int:
    stream, both, bad = _Stream(link, point), point.benchmark == "bidirectional", 0
    for _, recorded in link.orders():
        link.answer()
        with link.metered(stream.count, recorded):
            if both:
                _both(stream)
            else:
                stream.recv()
            link.answer()
        wrong = stream.bad()
        bad += wrong
        link.answer(wrong)
    return bad


# ---- one-sided access


def _accesses(link: Link, point: Point, samples: Samples) -> None:
    """Put or get one message per call, each at an offset of its own."""
    connection, deadline_s, size = link.connection, link.deadline_s, point.payload.bytes
    room = bytearray(KEY_BYTES)
    key = bytes(room[: connection.recv(room, deadline_s)])
    content, message, puts = Content(point.payload), Message(point.payload), point.benchmark == "put"
    content.write(message, 0)
    clock = time.perf_counter_ns
    for recorded in _phases(point):
        link.order(point.messages, recorded)
        times_ns = []
        with link.metered(point.messages, recorded):
            for number in range(point.messages):
                if puts:
                    content.number(message, number)
                start_ns = clock()
                if puts:
                    connection.put(message.memory, key, number * size, deadline_s)
                    connection.flush(deadline_s)
                else:
                    connection.get(message.memory, key, number * size, deadline_s)
                times_ns.append(clock() - start_ns)
                if not puts:
                    with link.meter.paused():
                        samples.bad += content.wrong(message, number)
        if recorded:
            samples.times_ns += times_ns
        link.answer()
        samples.bad += link.answered()


def _accessed(link: Link, point: Point) -> int:
    content, puts, bad = Content(point.payload), point.benchmark == "put", 0
    slots = [Message(point.payload) for _ in range(point.messages)]
    region = np.zeros((point.messages, point.payload.bytes), np.uint8)
    link.connection.send(link.connection.register(region), link.deadline_s)
    for _ in link.orders():
        for number, slot in enumerate(slots):
            content.write(slot, number)
            if puts:
                slot.clear()
            region[number] = slot.memory
        link.answer()
        link.answered()
        wrong = 0
        for number, slot in enumerate(slots):
            slot.memory[:] = region[number]
            wrong += puts and content.wrong(slot, number)
        bad += wrong
        link.answer(wrong)
    return bad


_STREAMS = (_streams, _received_streams)
_LOOPS: dict[str, tuple[Callable[[Link, Point, Samples], None], Callable[[Link, Point], int]]] = {
    "latency": (_ping_pongs, _echoes),
    **dict.fromkeys(("bandwidth", "bidirectional", "rate", "replay"), _STREAMS),
    **dict.fromkeys(("put", "get"), (_accesses, _accessed)),
}
"""Loops of the connecting end and of the listening end."""
