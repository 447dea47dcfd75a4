"""Library sockets: its wire format. tests/local/test_channels.py has the tests of all libraries."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlobd.network.channels import authentication, sockets
from dlobd.network.channels.base import (
    Closed,
    Connection,
    DeadlinePassed,
    Listener,
    MessageTooLong,
    PeerClosed,
    Traffic,
)
from dlobd.network.channels.sockets import SocketsChannel, SocketsConnection
from tests.ranks import PATIENCE_S, on_ranks, soon

SECRET = b"of this run"
SHORT_S = 0.05


def shortly() -> float:
    return time.monotonic() + SHORT_S


@pytest.fixture
def channel() -> Iterator[SocketsChannel]:
    made = SocketsChannel(secret=SECRET)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lasting() -> Iterator[tuple[Connection, Connection, ThreadPoolExecutor]]:
    """Connect two ends, with a thread for one of them, for tests that send many messages."""
    with ThreadPoolExecutor(1) as pool:
        made = SocketsChannel()
        listener = made.listen()
        here = made.connect(listener.address, soon())
        yield here, listener.accept(soon()), pool
        made.close()


def connected(channel: SocketsChannel) -> tuple[Any, Any]:
    listener = channel.listen()
    here = channel.connect(listener.address, soon())
    return here, listener.accept(soon())


def dialled(listener: Listener) -> socket.socket:
    """Return a bare connected socket that has sent nothing."""
    _, host, port = listener.address.split(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def exactly(bare: socket.socket, size: int) -> bytes:
    """Read a number of bytes, or fewer if the other end closes."""
    said = bytearray()
    while len(said) < size and (more := bare.recv(size - len(said))):
        said += more
    return bytes(said)


def joined(listener: Listener, secret: bytes = SECRET) -> tuple[socket.socket, bytes]:
    """Return a bare authenticated socket, and the answer that it received."""
    bare = dialled(listener)
    bare.sendall(authentication.hello(secret, exactly(bare, authentication.GREETING_BYTES)))
    return bare, exactly(bare, authentication.PROOF_BYTES)


def header(size: int) -> bytes:
    return struct.pack("<Q", size)


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 30_000), min_size=0, max_size=12),
    others=st.lists(st.integers(0, 30_000), min_size=0, max_size=12),
    seed=st.integers(0, 2**32),
)
def test_a_message_may_be_cut_anywhere_at_both_ends(
    lasting: tuple[Connection, Connection, ThreadPoolExecutor], cuts: list[int], others: list[int], seed: int
) -> None:
    here, there, pool = lasting
    whole = random.Random(seed).randbytes(sum(cuts))
    sent, at = [], 0
    for size in cuts:
        sent.append(whole[at : at + size])
        at += size
    into = [bytearray(size) for size in (*others, max(0, sum(cuts) - sum(others)))]
    sending = pool.submit(here.send_parts, sent, soon())
    assert there.recv_parts(into, soon()) == len(whole)
    sending.result(PATIENCE_S)
    assert b"".join(into)[: len(whole)] == whole


def test_more_parts_than_the_kernel_takes_at_once(
    lasting: tuple[Connection, Connection, ThreadPoolExecutor],
) -> None:
    """3000 parts exceed the kernel's limit of 1024 (UIO_MAXIOV)."""
    here, there, pool = lasting
    parts = [bytes([n % 251]) * (n % 7) for n in range(3000)]
    into = [bytearray(3) for _ in range(3100)]
    sending = pool.submit(here.send_parts, parts, soon())
    size = there.recv_parts(into, soon())
    sending.result(PATIENCE_S)
    assert b"".join(into)[:size] == b"".join(parts)


def test_many_short_messages_in_one_read_keep_their_boundaries(
    lasting: tuple[Connection, Connection, ThreadPoolExecutor],
) -> None:
    here, there, _ = lasting
    lengths = [n * 13 % 41 for n in range(2000)]
    for n, length in enumerate(lengths):
        here.send(bytes([n % 256]) * length, soon())
    memory = bytearray(41)
    for n, length in enumerate(lengths):
        assert there.recv(memory, soon()) == length
        assert memory[:length] == bytes([n % 256]) * length


def test_a_truncated_message_raises_peer_closed(channel: SocketsChannel) -> None:
    listener = channel.listen()
    for said in (b"\1\0\0", header(100), header(100) + b"x" * 99, header(100_000) + b"x" * 50_000):
        bare, _ = joined(listener)
        end = listener.accept(soon())
        bare.sendall(said)
        bare.close()
        with pytest.raises(PeerClosed, match="in the middle of a message"):
            end.recv(bytearray(100_000), soon())


def test_a_length_beyond_all_memory_is_refused(channel: SocketsChannel) -> None:
    listener = channel.listen()
    bare, _ = joined(listener)
    end = listener.accept(soon())
    bare.sendall(header(2**60) + b"x" * 1000)
    with pytest.raises(MessageTooLong, match=str(2**60)):
        end.recv(bytearray(10), shortly())
    with pytest.raises(DeadlinePassed):
        end.recv(bytearray(10), shortly())
    bare.close()


def test_a_message_whose_deadline_passed_is_skipped_by_the_next_call(channel: SocketsChannel) -> None:
    listener = channel.listen()
    bare, _ = joined(listener)
    end = listener.accept(soon())
    whole = header(20_000) + b"a" * 20_000
    bare.sendall(whole[:5])
    with pytest.raises(DeadlinePassed):
        end.recv(bytearray(20_000), shortly())
    bare.sendall(whole[5:9000])
    with pytest.raises(DeadlinePassed):
        end.recv(bytearray(20_000), shortly())
    bare.sendall(whole[9000:] + header(4) + b"next")
    into = bytearray(20_000)
    assert end.recv(into, soon()) == 4
    assert into[:4] == b"next"
    bare.close()


def test_a_message_that_was_cut_by_its_deadline_ends_the_connection(channel: SocketsChannel) -> None:
    listener = channel.listen()
    end = channel.connect(listener.address, soon())
    other = listener.accept(soon())
    with pytest.raises(DeadlinePassed):
        end.send(bytes(50_000_000), shortly())
    with pytest.raises(Closed, match="was cut"):
        end.send(b"x", soon())
    with pytest.raises(PeerClosed, match="in the middle of a message"):
        other.recv(bytearray(50_000_000), soon())


def test_a_slow_receiver_gets_all(channel: SocketsChannel) -> None:
    listener = channel.listen()
    bare, _ = joined(listener)
    end = listener.accept(soon())
    whole = random.Random(2).randbytes(12_000_000)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(end.send_parts, [whole[:3], whole[3:7_000_000], whole[7_000_000:]], soon())
        time.sleep(2 * sockets.TICK_S)
        assert exactly(bare, 8) == header(len(whole))
        assert exactly(bare, len(whole)) == whole
        sending.result(PATIENCE_S)
    bare.close()


def test_messages_sent_before_close_still_arrive(channel: SocketsChannel) -> None:
    listener = channel.listen()
    end = channel.connect(listener.address, soon())
    other = listener.accept(soon())
    end.send(b"x" * 10_000, soon())
    end.close()
    assert other.recv(bytearray(10_000), soon()) == 10_000
    with pytest.raises(PeerClosed):
        other.recv(bytearray(1), soon())


def test_garbage_is_refused_at_once_and_the_next_peer_is_served(
    channel: SocketsChannel, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = channel.listen()
    for said in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\x16\x03\x01"):
        bare = dialled(listener)
        exactly(bare, authentication.GREETING_BYTES)
        bare.sendall(said)
        try:
            assert exactly(bare, 1) == b""
        except ConnectionResetError:
            pass  # the rest of what it said was not read
        bare.close()
    dialled(listener).close()
    end = channel.connect(listener.address, soon())
    end.send(b"x", soon())
    assert listener.accept(soon()).recv(bytearray(1), soon()) == 1
    lines = capfd.readouterr().err.splitlines()
    assert sum("it does not speak the protocol of dlobd's channels" in line for line in lines) == 3
    assert all(line.startswith(f"dlobd: {listener.address}: refused 127.0.0.1:") for line in lines)


def test_a_silent_peer_delays_no_other_and_is_refused(
    channel: SocketsChannel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = channel.listen()
    slow = [dialled(listener) for _ in range(3)]
    for bare in slow:
        exactly(bare, authentication.GREETING_BYTES)
    channel.connect(listener.address, soon())
    listener.accept(soon())
    for bare in slow:
        bare.setblocking(False)
        with pytest.raises(BlockingIOError):  # they are still waited for
            bare.recv(1)
        bare.close()
    monkeypatch.setattr(authentication, "HANDSHAKE_S", SHORT_S)
    late = dialled(listener)
    assert len(exactly(late, authentication.GREETING_BYTES + 1)) == authentication.GREETING_BYTES
    late.close()
    assert "it did not complete the handshake within 0.05 s" in capfd.readouterr().err


def test_a_listener_that_does_not_know_the_secret_gets_no_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor, ThreadPoolExecutor(1) as pool:
        channel = SocketsChannel(secret=SECRET)
        address = f"sockets:127.0.0.1:{impostor.getsockname()[1]}"
        dialling = pool.submit(channel.connect, address, soon())
        bare, _ = impostor.accept()
        bare.sendall(authentication.greeting())
        said = exactly(bare, authentication.HELLO_BYTES)
        bare.sendall(said[-authentication.PROOF_BYTES :])  # its own proof, sent back
        with pytest.raises(authentication.Refused, match="does not have the run's secret"):
            dialling.result(PATIENCE_S)
        bare.close()
        channel.close()


def test_a_port_of_another_program_is_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        channel = SocketsChannel()
        dialling = pool.submit(channel.connect, f"sockets:127.0.0.1:{other.getsockname()[1]}", soon())
        bare, _ = other.accept()
        bare.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        with pytest.raises(authentication.Refused, match="is no listener of library sockets"):
            dialling.result(PATIENCE_S)
        bare.close()
        channel.close()


def test_closing_a_channel_wakes_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(2) as pool:
        channel = SocketsChannel()
        gone = channel.listen()
        gone.close()
        waiting = [
            pool.submit(channel.connect, address, soon())
            for address in (f"sockets:127.0.0.1:{silent.getsockname()[1]}", gone.address)
        ]
        time.sleep(SHORT_S)
        channel.close()
        for each in waiting:
            with pytest.raises(Closed):
                each.result(PATIENCE_S / 2)


@pytest.mark.parametrize(
    ("near_us", "address", "limited"),
    [
        (10**6, "127.0.0.3", True),
        (10**6, "127.0.0.2", False),
        (0, "127.0.0.3", False),
    ],
)
def test_a_near_peer_gets_a_small_send_buffer(
    monkeypatch: pytest.MonkeyPatch, near_us: int, address: str, limited: bool
) -> None:
    """Decided by the round trip that the kernel has measured; other peers get the kernel's default."""
    monkeypatch.setattr(sockets, "NEAR_US", near_us)
    with socket.create_server(("127.0.0.2", 0)) as listener:
        bare = socket.create_connection(listener.getsockname(), PATIENCE_S, (address, 0))
        there, _ = listener.accept()
    end = SocketsConnection(bare, "the peer", Traffic("tcp", "lo"))
    taken = end.detach()
    found = taken.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert (found == 2 * sockets.NEAR_SEND_BYTES) == limited  # socket(7): the kernel doubles it
    taken.close()
    there.close()


def test_a_started_send_progresses_while_the_same_end_receives(channel: SocketsChannel) -> None:
    size = 32 << 20

    def work(end: Any) -> bytes:
        begun = [end.begin_send(np.full(size, number, np.uint8)) for number in (1, 2)]
        into = np.empty(size, np.uint8)
        found = bytearray()
        for _ in range(2):
            assert end.recv(into, soon()) == size
            found += bytes({*into[:: 1 << 16].tolist()})
        for each in begun:
            if each is not None:
                end.finish_send(each, soon())
        end.send(b"behind", soon())
        assert end.recv(into, soon()) == 6
        return bytes(found)

    ends = connected(channel)
    assert on_ranks(2, lambda rank: work(ends[rank])) == [b"\1\2"] * 2
