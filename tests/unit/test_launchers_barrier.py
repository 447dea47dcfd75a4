"""The barrier launcher's pipe between a Spark task and its trainer: real pipes, and a real child that dies."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from dlobd.job.launchers import barrier, trainer_process


def fed(blocks: list[bytes], epochs: int) -> list[bytes]:
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as source, os.fdopen(write_fd, "wb") as sink:
        task = threading.Thread(target=barrier._feed, args=(sink, iter(blocks), epochs))
        task.start()
        feed, found = trainer_process.PipeFeed(source), []
        while (block := feed.next_block()) is not None:
            found.append(block)
        task.join(20)
    return found


@pytest.mark.parametrize("epochs", [1, 3])
def test_blocks_arrive_whole_and_in_order(epochs: int) -> None:
    blocks = [b"a" * 10, b"", os.urandom(3 << 20), b"end"]
    assert fed(blocks, epochs) == blocks * epochs


def test_a_feed_without_blocks_ends() -> None:
    assert fed([], 2) == []


def test_a_trainer_that_has_enough_closes_its_pipe() -> None:
    """Its task then feeds no more, in whichever epoch and however much is left, and notices at once."""
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as source, ThreadPoolExecutor(1) as tasks:
        sink = os.fdopen(write_fd, "wb")
        feeding = tasks.submit(barrier._feed, sink, iter([b"a", b"b" * (2 << 20)]), 10_000)
        feed = trainer_process.PipeFeed(source)
        assert [feed.next_block() for _ in range(3)] == [b"a", b"b" * (2 << 20), b"a"]
        feed.stop()
        with pytest.raises(BrokenPipeError):
            feeding.result(20)
        with suppress(BrokenPipeError):
            sink.close()


@pytest.mark.parametrize("cut", [3, 10])
def test_a_feeding_task_that_is_gone_is_an_error(cut: int) -> None:
    """An end without the end-of-feed mark, in a length or inside a block, is never taken for the end of the data."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, (trainer_process.LENGTH.pack(5) + b"abcde")[:cut])
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as source, pytest.raises(EOFError, match="Spark task"):
        trainer_process.PipeFeed(source).next_block()
