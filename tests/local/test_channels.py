"""The contract of all channel libraries that have code in dlobd."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dlobd.axes import LIBRARIES
from dlobd.network.channels.base import (
    Closed,
    Connection,
    DeadlinePassed,
    MessageTooLong,
    NotSupported,
    OpenChannel,
    OutOfBounds,
    PeerClosed,
)
from tests.ranks import PATIENCE_S, soon

SIZES = [0, 1, 7, 4097, 5_000_001]
SHORT_S = 0.05

_ROWS = [pytest.param(row, id=row.name) for row in LIBRARIES if row.target]


@pytest.fixture(params=_ROWS)
def make(request: pytest.FixtureRequest) -> Callable[[], OpenChannel]:
    """Make a channel of each library that is available here."""
    if reason := request.param.reason():
        pytest.skip(reason)
    made: Callable[[], OpenChannel] = LIBRARIES.get(request.param.name)
    return made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for the other end; a test fails if it leaves one waiting."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def ends(make: Callable[[], OpenChannel], threads: ThreadPoolExecutor) -> Iterator[tuple[Connection, Connection]]:
    """Two connected ends, each of a channel of its own."""
    here, there = make(), make()
    yield connected(here, there, threads)
    here.close()
    there.close()


def connected(here: OpenChannel, there: OpenChannel, threads: ThreadPoolExecutor) -> tuple[Connection, Connection]:
    listener = there.listen()
    accepted = threads.submit(listener.accept, soon())
    return here.connect(listener.address, soon()), accepted.result(PATIENCE_S)


def echo(end: Connection, size: int, count: int = 1) -> None:
    memory = bytearray(size)
    for _ in range(count):
        end.send(memoryview(memory)[: end.recv(memory, soon())], soon())


@pytest.mark.parametrize("size", SIZES)
def test_a_message_of_any_size_arrives_whole(
    ends: tuple[Connection, Connection], threads: ThreadPoolExecutor, size: int
) -> None:
    sent = np.frombuffer(random.Random(size).randbytes(size), np.uint8)
    other = threads.submit(echo, ends[1], size + 9)
    ends[0].send(sent, soon())
    into = np.full(size + 5, 77, np.uint8)
    assert ends[0].recv(into, soon()) == size
    other.result(PATIENCE_S)
    np.testing.assert_array_equal(into[:size], sent)
    assert into[size:].tolist() == [77] * 5


def test_a_send_may_be_started_without_waiting(
    make: Callable[[], OpenChannel], ends: tuple[Connection, Connection], threads: ThreadPoolExecutor
) -> None:
    one, other = ends
    if not make().capabilities.begins:
        with pytest.raises(NotSupported):
            one.begin_send(b"")
        return
    sent = [np.frombuffer(random.Random(size).randbytes(size), np.uint8) for size in (3_000_000, 0, 100, 70_000)]
    begun = [one.begin_send(message) for message in sent]

    def finish() -> None:
        for each in begun:
            if each is not None:
                one.finish_send(each, soon())

    finishing = threads.submit(finish)
    for message in sent:
        into = np.empty(3_000_000, np.uint8)
        assert other.recv(into, soon()) == message.nbytes
        np.testing.assert_array_equal(into[: message.nbytes], message)
    finishing.result(PATIENCE_S)


def test_memory_may_be_announced_before_its_message(
    ends: tuple[Connection, Connection], threads: ThreadPoolExecutor
) -> None:
    """Also of messages that are shorter than their memory, or do not fit: only such a message is lost."""
    one, other = ends
    sizes, rooms = (3_000_000, 0, 100, 70_000, 101, 8), (3_000_000, 5, 100, 80_000, 100, 8)
    sent = [random.Random(size).randbytes(size) for size in sizes]
    memory = [bytearray(room) for room in rooms]
    announced = [other.begin_recv(each) for each in memory]
    sending = threads.submit(lambda: [one.send(message, soon()) for message in sent])
    for size, room, message, into, begun in zip(sizes, rooms, sent, memory, announced, strict=True):
        if size > room:
            with pytest.raises(MessageTooLong):
                other.finish_recv(begun, soon())
            assert into == bytes(room)
        else:
            assert other.finish_recv(begun, soon()) == size
            assert into[:size] == message
    sending.result(PATIENCE_S)


def test_closing_gives_announced_memory_back(ends: tuple[Connection, Connection]) -> None:
    announced = [ends[0].begin_recv(bytearray(100_000)) for _ in range(3)]
    ends[0].close()
    with pytest.raises(Closed):
        ends[0].finish_recv(announced[0], soon())


def test_messages_keep_their_order_and_boundaries(
    ends: tuple[Connection, Connection], threads: ThreadPoolExecutor
) -> None:
    lengths = [n * 37 % 101 for n in range(100)]
    other = threads.submit(lambda: [ends[1].send(bytes([n]) * length, soon()) for n, length in enumerate(lengths)])
    memory = bytearray(101)
    for n, length in enumerate(lengths):
        assert ends[0].recv(memory, soon()) == length
        assert memory[:length] == bytes([n]) * length
    other.result(PATIENCE_S)


def test_both_ends_may_send_at_once(ends: tuple[Connection, Connection], threads: ThreadPoolExecutor) -> None:
    size = 1_000_003
    senders = [threads.submit(end.send, bytes([k]) * size, soon()) for k, end in enumerate(ends)]
    for k, end in enumerate(ends):
        into = bytearray(size)
        assert end.recv(into, soon()) == size
        assert into == bytes([1 - k]) * size
    for sender in senders:
        sender.result(PATIENCE_S)


@pytest.mark.parametrize("cut", [(0,), (1, 0, 3, 5), (4_000_000, 1)])
def test_a_message_in_parts(
    ends: tuple[Connection, Connection], threads: ThreadPoolExecutor, cut: tuple[int, ...]
) -> None:
    whole = random.Random(1).randbytes(sum(cut))
    parts, at = [], 0
    for size in cut:
        parts.append(whole[at : at + size])
        at += size
    sender = threads.submit(ends[0].send_parts, parts, soon())
    into = [np.zeros(sum(cut) // 2, np.uint8), bytearray(sum(cut) - sum(cut) // 2 + 2)]
    assert ends[1].recv_parts(into, soon()) == sum(cut)
    sender.result(PATIENCE_S)
    assert b"".join(bytes(part) for part in into)[: len(whole)] == whole


def test_arrays_of_any_type_are_sent_as_bytes(ends: tuple[Connection, Connection], threads: ThreadPoolExecutor) -> None:
    sent = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    sender = threads.submit(ends[0].send, sent, soon())
    into = np.empty((2, 3, 4), np.float32)
    assert ends[1].recv(into, soon()) == sent.nbytes
    sender.result(PATIENCE_S)
    np.testing.assert_array_equal(into, sent)


def test_a_message_that_does_not_fit_is_refused(
    ends: tuple[Connection, Connection], threads: ThreadPoolExecutor
) -> None:
    sender = threads.submit(lambda: (ends[0].send(b"x" * 100, soon()), ends[0].send(b"next", soon())))
    into = bytearray(99)
    with pytest.raises(MessageTooLong, match="100"):
        ends[1].recv(into, soon())
    assert into == bytes(99)
    assert ends[1].recv(into, soon()) == 4
    sender.result(PATIENCE_S)


def test_a_passed_deadline_is_an_error(ends: tuple[Connection, Connection]) -> None:
    began_s = time.monotonic()
    with pytest.raises(DeadlinePassed):
        ends[0].recv(bytearray(1), began_s + SHORT_S)
    assert SHORT_S <= time.monotonic() - began_s < PATIENCE_S / 2


def test_connect_and_accept_without_a_peer_pass_their_deadline(make: Callable[[], OpenChannel]) -> None:
    channel = make()
    listener = channel.listen()
    with pytest.raises(DeadlinePassed):
        listener.accept(time.monotonic() + SHORT_S)
    listener.close()
    with pytest.raises(DeadlinePassed):
        channel.connect(listener.address, time.monotonic() + SHORT_S)
    channel.close()


def test_a_closing_peer_wakes_a_receiver(ends: tuple[Connection, Connection], threads: ThreadPoolExecutor) -> None:
    waiting = threads.submit(ends[0].recv, bytearray(1), soon())
    time.sleep(SHORT_S)
    ends[1].close()
    with pytest.raises(PeerClosed):
        waiting.result(PATIENCE_S / 2)
    with pytest.raises(PeerClosed):
        ends[0].recv(bytearray(1), soon())


def test_closing_this_end_wakes_its_own_threads(
    ends: tuple[Connection, Connection], threads: ThreadPoolExecutor
) -> None:
    waiting = threads.submit(ends[0].recv, bytearray(1), soon())
    time.sleep(SHORT_S)
    ends[0].close()
    with pytest.raises(Closed):
        waiting.result(PATIENCE_S / 2)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 2, 1, 3, 3)])
def test_close_in_any_order(
    make: Callable[[], OpenChannel], threads: ThreadPoolExecutor, order: tuple[int, ...]
) -> None:
    here, there = make(), make()
    things: list[Any] = [*connected(here, there, threads), here, there]
    for index in order:
        things[index].close()
    with pytest.raises((Closed, PeerClosed)):
        things[0].send(b"x", soon())


def test_evidence_counts_messages_and_bytes(make: Callable[[], OpenChannel], threads: ThreadPoolExecutor) -> None:
    here, there = make(), make()
    one, other = connected(here, there, threads)
    back = threads.submit(echo, other, 1000, 3)
    for size in (1000, 0, 11):
        one.send(bytes(size), soon())
        one.recv(bytearray(1000), soon())
    back.result(PATIENCE_S)
    here.close()
    there.close()
    for found in (here.evidence(), there.evidence()):
        assert (found.sent_messages, found.sent_bytes) == (found.received_messages, found.received_bytes) == (3, 1011)
        assert found.kind != "unknown"


def test_one_sided_access(
    make: Callable[[], OpenChannel], ends: tuple[Connection, Connection], threads: ThreadPoolExecutor
) -> None:
    memory = np.zeros(100, np.uint8)
    if not make().capabilities.one_sided:
        with pytest.raises(NotSupported):
            ends[0].register(memory)
        return
    key = ends[1].register(memory)
    ends[0].put(b"abc", key, 97, soon())
    ends[0].flush(soon())
    assert memory[-4:].tobytes() == b"\0abc"
    into = bytearray(2)
    ends[0].get(into, key, 98, soon())
    assert into == b"bc"
    for offset, wrong in ((98, key), (-1, key), (0, b"another")):
        with pytest.raises(OutOfBounds):
            ends[0].put(b"abc", wrong, offset, soon())
        with pytest.raises(OutOfBounds):
            ends[0].get(bytearray(3), wrong, offset, soon())
    assert memory[:97].tobytes() == bytes(97)


def settled(expected: tuple[int, int] | None = None) -> tuple[int, int]:
    """Threads and descriptors of this process, once they are as expected, or else have not changed for a while:
    threads of a library's own, such as gRPC's, may end a moment after `close`."""
    until_s, found = soon(), (-1, -1)
    while time.monotonic() < until_s:
        gc.collect()
        before, found = found, (threading.active_count(), len(os.listdir("/proc/self/fd")))
        if found == expected or (expected is None and found == before):
            break
        time.sleep(0.2)
    return found


def test_two_hundred_channels_leave_no_thread_and_no_descriptor(
    make: Callable[[], OpenChannel], threads: ThreadPoolExecutor
) -> None:
    before = 0, 0
    for n in range(200):
        here, there = make(), make()
        one, other = connected(here, there, threads)
        back = threads.submit(echo, other, 10)
        one.send(b"x" * 10, soon())
        one.recv(bytearray(10), soon())
        back.result(PATIENCE_S)
        here.close()
        there.close()
        if n == 9:  # the pool has all its threads by then
            before = settled()
    assert all(after - at_first < 10 for after, at_first in zip(settled(before), before, strict=True))
