"""The barrier launcher's pipe between a Spark task and its trainer: real pipes, and a real child that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dlobd.attribution.importers import recorder
from dlobd.job.launchers import barrier, trainer_process


def fed(blocks: list[bytes], epochs: int) -> list[bytes]:
    """What the trainer's end gets of what a task feeds."""
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
    """Also blocks larger than the pipe, and empty ones; later epochs repeat the first, though Spark reads once."""
    blocks = [b"a" * 10, b"", os.urandom(3 << 20), b"end"]
    assert fed(blocks, epochs) == blocks * epochs


def test_a_feed_without_blocks_ends() -> None:
    """An empty partition is an end, not a wait for ever."""
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


def test_a_trainer_does_not_outlive_its_killed_task(tmp_path: Path) -> None:
    """kill -9 of the Python worker: the kernel ends the trainer, although nobody is left to tell it."""
    code = """
import os, sys, time
from dlobd.job.launchers import trainer_process
process = trainer_process.start(os.environ)
print(process.pid, flush=True)
time.sleep(100)
"""
    environment = {**os.environ, "LOG_DIRS": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as task:
        assert task.stdout is not None
        trainer = psutil.Process(int(task.stdout.readline()))
        deadline = time.monotonic() + 30
        # its recorder is opened after it asked the kernel; an empty file has no process yet
        while not any(process.spans for process in recorder.read_all(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        task.send_signal(signal.SIGKILL)
    psutil.wait_procs([trainer], timeout=20)
    assert not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE
    (process,) = recorder.read_all(tmp_path)
    assert process.spans[0].layer == "tensorflow"
    assert process.spans[0].truncated or process.named("await place")[0].truncated
