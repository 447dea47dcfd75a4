"""Blocks that are taken ahead of the step loop: all of them, in their order, within bounds, and no failure is lost."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.job.description import Job, Markers
from dlobd.job.launchers import tfos
from dlobd.job.launchers.base import Node
from dlobd.job.launchers.tfos import ReadAhead
from dlobd.job.training import inputs, trainer
from dlobd.job.training.inputs import Deadlines
from tests import forks
from tests.jobs import prepared
from tests.recorded import read_all

PATIENCE_S = 20.0


def blocks(count: int, size: int = 10) -> list[bytes]:
    return [bytes([k]) * size for k in range(count)]


def counted(given: list[bytes]) -> tuple[Callable[[], bytes | None], list[int], threading.Semaphore]:
    """A feed of these blocks, what was taken of it, and a semaphore that is released at each call."""
    left, taken, called = iter(given), [], threading.Semaphore(0)

    def take() -> bytes | None:
        block = next(left, None)
        taken.append(len(block or b""))
        called.release()
        return block

    return take, taken, called


def test_all_blocks_come_in_their_order_and_then_the_end() -> None:
    feed = ReadAhead(iter([*blocks(50), None]).__next__, limit=100, ahead=3)
    assert [feed.next_block() for _ in range(52)] == [*blocks(50), None, None]


def test_no_more_is_taken_than_fits_or_is_wanted() -> None:
    take, taken, called = counted(blocks(50))
    feed = ReadAhead(take, limit=6, ahead=3)
    for _ in range(3):
        assert called.acquire(timeout=PATIENCE_S)
    assert not called.acquire(timeout=0.2)
    assert len(taken) == 3
    assert feed.next_block() == blocks(1)[0]
    assert called.acquire(timeout=PATIENCE_S)
    assert not called.acquire(timeout=0.2)
    assert [feed.next_block() for _ in range(6)] == [*blocks(6)[1:], None]
    assert len(taken) == 6


def test_one_ahead_is_one_at_a_time() -> None:
    feed = ReadAhead(iter([*blocks(3, size=1000), None]).__next__, limit=9, ahead=1)
    assert [feed.next_block() for _ in range(4)] == [*blocks(3, size=1000), None]


def test_every_rank_gets_its_share_of_small_partitions() -> None:
    """As Spark hands them out: an executor begins the next task once its last one's blocks are all taken. Rank 1 starts
    late, and a step needs both: a rank that took whole partitions ahead of it would leave it without one."""
    job: Any = SimpleNamespace(batch_size=10, layout=SimpleNamespace(record_bytes=100), steps_per_epoch=8)
    epochs, ranks = 5, 2
    tasks: queue.Queue[list[bytes]] = queue.Queue()
    for _ in range(epochs * ranks):
        tasks.put(blocks(job.steps_per_epoch))
    queues: list[queue.Queue[bytes]] = [queue.Queue() for _ in range(ranks)]
    step = threading.Barrier(ranks)
    got = [0] * ranks

    def executor(own: queue.Queue[bytes]) -> None:
        while True:
            try:
                task = tasks.get_nowait()
            except queue.Empty:
                return
            for block in task:
                own.put(block)
            own.join()

    def train(rank: int) -> None:
        def take() -> bytes:
            block = queues[rank].get()
            queues[rank].task_done()
            return block

        wanted = epochs * job.steps_per_epoch
        feed = ReadAhead(take, wanted, tfos._blocks_ahead(job))
        for _ in range(wanted):
            assert feed.next_block()
            step.wait(PATIENCE_S)
            got[rank] += 1

    first = [threading.Thread(target=executor, args=(queues[0],), daemon=True)]
    first.append(threading.Thread(target=train, args=(0,), daemon=True))
    late = [threading.Thread(target=executor, args=(queues[1],), daemon=True)]
    late.append(threading.Thread(target=train, args=(1,), daemon=True))
    for threads in (first, late):
        for thread in threads:
            thread.start()
        time.sleep(0.2)
    for thread in (*first, *late):
        thread.join(PATIENCE_S)
    assert got == [epochs * job.steps_per_epoch] * ranks


@pytest.mark.parametrize(("steps", "ahead"), [(1, 0), (2, 1), (9, 4), (20_000, 8388)])
def test_at_most_half_a_partition_and_8_mib_are_taken_ahead(steps: int, ahead: int) -> None:
    job: Any = SimpleNamespace(batch_size=10, layout=SimpleNamespace(record_bytes=100), steps_per_epoch=steps)
    assert tfos._blocks_ahead(job) == ahead


def test_a_failure_comes_after_the_blocks_before_it() -> None:
    left = iter(blocks(2))

    def take() -> bytes:
        for block in left:
            return block
        raise EOFError("the manager is gone")

    feed = ReadAhead(take, limit=9, ahead=5)
    assert [feed.next_block(), feed.next_block()] == blocks(2)
    for _ in range(2):
        with pytest.raises(EOFError, match="the manager is gone"):
            feed.next_block()


def test_a_stalled_feed_has_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    told: queue.Queue[str] = queue.Queue()
    given_up = threading.Event()
    left = iter([b"block"])

    def take() -> bytes | None:
        for block in left:
            return block
        given_up.wait(PATIENCE_S)
        return None

    def give_up(cause: str) -> None:
        told.put(cause)
        given_up.set()

    monkeypatch.setattr(inputs, "FEED_TIMEOUT_S", 0.2)
    monkeypatch.setattr(inputs, "decode_block", lambda block, layout: (block, 0))
    job: Any = SimpleNamespace(input="feed", augment="none", layout=None, steps=7, most_steps=7)
    node = Node(0, ("",), ReadAhead(take, limit=7, ahead=5))
    tf = SimpleNamespace(constant=lambda value: value)
    assert [batch[0] for batch in inputs.batches(tf, job, node, Deadlines(give_up))] == [b"block"]
    assert told.get(timeout=PATIENCE_S) == "the feed stalled: no block came for 0 s, after 1 of 7 blocks"


def test_only_what_the_step_loop_waits_for_is_its_wait(tmp_path: Path) -> None:
    """A span for a block that is not there yet, and none for one that is; what the thread does is the thread's."""
    code = """
import sys, threading
from dlobd import spans as kinds, tracing
from dlobd.job.launchers.tfos import ReadAhead
tracing.start(sys.argv[1], "chief")
wanted, there = threading.Event(), threading.Event()
left = iter([b"late", b"early", None])
def take():
    block = next(left)
    if block == b"late":
        wanted.wait(20)
    if block is None:
        there.set()
    with tracing.span(kinds.GET, bytes=len(block or b"")):
        return block
feed = ReadAhead(take, limit=9, ahead=5)
threading.Timer(0.2, wanted.set).start()
print(feed.next_block())
there.wait(20)
print(feed.next_block())
tracing.flush()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=110)
    assert done.stdout.split() == ["b'late'", "b'early'"], done.stderr
    (process,) = read_all(tmp_path)
    (waited,) = process.named("await block")
    assert (waited.thread, waited.wait["waits_for"]) == ("", ("@reader",))
    assert {span.thread for span in process.spans if span != waited} == {"dlobd-reader"}
    (ahead,) = process.named("read ahead")
    assert [get.parent for get in process.named("get")] == [ahead.id] * 3


@pytest.mark.slow
def test_a_failure_of_the_feed_is_the_ranks_cause(tmp_path: Path) -> None:
    told = prepared(tmp_path, input="feed", model="mlp", optimiser="sgd", schedule="constant")
    done = forks.first(["-m", "tests.local.test_launchers_read_ahead", tmp_path / "job.json"])
    assert done.returncode == 1
    assert Markers(told).read()[1] == "rank 0 (chief): EOFError: the manager is gone"


def _broken() -> bytes | None:
    raise EOFError("the manager is gone")


if __name__ == "__main__":
    job_ = Job.read(sys.argv[1])
    trainer.main(job_, Node(0, ("",), ReadAhead(_broken, job_.steps, ahead=5)))


QUEUE = """
import threading
from types import SimpleNamespace
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFManager, TFNode
from dlobd.job.launchers.tfos import ReadAhead, _TfosFeed
manager = TFManager.start(b"key", ["input", "output", "error"])
queue = manager.get_queue("input")
for _ in range(int(sys.argv[1])):
    queue.put(bytes(100))
told = SimpleNamespace(get_data_feed=lambda train_mode: TFNode.DataFeed(manager, train_mode))
feed = _TfosFeed(told)
ahead = ReadAhead(feed.next_block, limit=1000, ahead=3, stop=feed.stop)
print(len(ahead.next_block()))
joining = threading.Thread(target=queue.join, daemon=True)
joining.start()
ahead.stop()
joining.join(10)
print(joining.is_alive(), ahead._thread.is_alive(), manager.get("state"))
"""


@pytest.mark.parametrize("count", [1, 50])
def test_a_trainer_that_has_enough_empties_its_queue(count: int) -> None:
    command = [sys.executable, "-c", f"import sys{QUEUE}", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["100", "False False 'terminating'"]
