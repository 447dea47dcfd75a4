"""dlobd's own launcher: Spark's barrier mode, one partition per rank, the trainer in a fresh child process.

    task of rank r:  start child (it imports TensorFlow at once) -> all-gather addresses -> tell the child its place
                     -> feed it blocks through a pipe, if there are any -> wait for its end

No server, no poll, no sleep: a barrier stage starts and fails as one, and a child leaves no state in a Python worker
that Spark may use again.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers import log_stream
from dlobd.job.launchers import pipe as pipes
from dlobd.job.launchers.base import Done, Main, Roles, TrainingFailed, role_of
from dlobd.job.launchers.death import MemoryGroup, how
from dlobd.job.launchers.driver_clock import driver_host
from dlobd.job.launchers.own_address import own_address
from dlobd.job.launchers.reason import one_line
from dlobd.job.launchers.visible_gpus import VISIBLE
from dlobd.job.launchers.watching import await_joined, meets_by_tensorflow, watched

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

PIPE_BYTES = 1 << 20
"""What the feed's pipe holds: about a dozen blocks. Linux lets an ordinary user have this much."""

BARRIER_PATIENCE_S = 120
"""How long tasks wait for one that does not come to the all-gather. All were started together."""


class BarrierLauncher:
    """See `dlobd.job.launchers.base`. Chief and workers only."""

    def spark_conf(self) -> dict[str, str]:
        """The worker daemon that carries dlobd's recorder."""
        return {
            "spark.python.daemon.module": "dlobd.job.launchers.worker_daemon",
            "spark.barrier.sync.timeout": str(BARRIER_PATIENCE_S),  # Spark's own is a year
        }

    def launch(
        self, sc: SparkContext, main: Main, job: Any, roles: Roles, blocks: RDD[bytes] | None, epochs: int, done: Done
    ) -> None:
        """See `dlobd.job.launchers.base`."""
        rdd: RDD[Any] = sc.parallelize(range(roles.ranks), roles.ranks) if blocks is None else blocks
        try:
            with log_stream.listen(driver_host(sc)) as (address, senders), watched(sc, done):
                fed_epochs = epochs if blocks is not None else 0
                task = _RankTask(pickle.dumps((main, job)), fed_epochs, done, address, meets_by_tensorflow(job))
                with tracing.span(kinds.BARRIER_JOB):
                    rdd.barrier().mapPartitions(task).collect()
        except Exception as error:
            missing = {f"rank {rank}" for rank in range(roles.ranks)} - senders
            # Spark says so, or the waiting task's connection to it just ends: whichever comes first
            if missing and any(words in str(error) for words in ("all barrier sync requests", "in allGather")):
                cause = f"{' and '.join(sorted(missing))} did not reach the barrier within {BARRIER_PATIENCE_S} s"
                raise TrainingFailed(cause) from error
            raise TrainingFailed(one_line(error, done)) from error
        if failure := done.failure():
            raise TrainingFailed(failure)


class _RankTask:
    """What each barrier task does; its partition id is the rank.

    Args:
        work: what the child is to run, pickled: unpickled here, it would import in the Python worker what only the
            child needs.
        watch: whether ranks join TensorFlow's cluster, which nobody but rank 0's task would see them fail to do.
    """

    def __init__(self, work: bytes, epochs: int, done: Done, logs: log_stream.Address, watch: bool) -> None:
        self._work = work
        self._epochs = epochs
        self._done = pickle.dumps(done)
        self._logs = logs
        self._watch = watch

    def __call__(self, blocks: Iterator[bytes]) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        rank = context.partitionId()
        with tracing.span(kinds.BARRIER_TASK, task_attempt=context.taskAttemptId()):
            with tracing.span(kinds.START_CHILD) as span:
                child = start_child(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(context))
                span.note(pid=child.pid)
            try:
                self._run(context, rank, child, blocks)
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        yield rank

    def _run(self, context: Any, rank: int, child: subprocess.Popen[bytes], blocks: Iterator[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        memory = MemoryGroup.read()
        logs = threading.Thread(target=log_stream.forward, args=(child.stdout, f"rank {rank}", self._logs), daemon=True)
        logs.start()
        host = own_address() or socket.gethostbyname(socket.gethostname())
        with socket.socket() as reserved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((host, 0))
            own = f"{host}:{reserved.getsockname()[1]}"
            with tracing.span(kinds.ALL_GATHER_ADDRESSES, address=own):
                addresses = context.allGather(own)
        with tracing.span(kinds.TELL_PLACE):
            tell(child.stdin, self._work, rank, addresses, fed=self._epochs > 0)
        ended = threading.Event()
        if rank == 0 and self._watch:
            servers = dict(zip(in_words(len(addresses)), addresses, strict=True))
            watch = threading.Thread(target=await_joined, args=(servers, self._report_failure, ended), daemon=True)
            watch.start()
        try:
            if self._epochs:
                _feed(child.stdin, blocks, self._epochs)
            child.stdin.close()
        except BrokenPipeError:
            pass  # the child wants no more, or is gone: its exit code says which
        with tracing.span(kinds.WAIT_FOR_TRAINER):
            code = child.wait()
        ended.set()
        logs.join(timeout=5)
        if code:
            cause = f"trainer process {child.pid} of rank {rank} died: {how(code, memory)}"
            if code < 0:
                tracing.instant(kinds.TRAINER_DIED, cause=cause, pid=child.pid, code=code)
                self._unpickled_done().report_death(cause)
            else:
                self._report_failure(cause)  # the first one counts: a trainer that could speak has spoken
            raise RuntimeError(cause)

    def _unpickled_done(self) -> Done:
        # only once it is needed: it brings imports along
        done: Done = pickle.loads(self._done)
        return done

    def _report_failure(self, cause: str) -> None:
        self._unpickled_done().report_failure(cause)


def _environment(context: Any) -> dict[str, str]:
    """This process's own, with the GPUs that Spark assigned to the task, if any."""
    gpu = context.resources().get("gpu")
    return {**os.environ, **({VISIBLE: ",".join(gpu.addresses)} if gpu else {})}


def start_child(**options: Any) -> subprocess.Popen[bytes]:
    """A trainer's process that waits for `tell` on its stdin; `options` are those of Popen."""
    return subprocess.Popen([sys.executable, "-m", "dlobd.job.launchers.child"], stdin=subprocess.PIPE, **options)


def in_words(ranks: int) -> list[str]:
    """What each rank is, in words."""
    return [f"{role} {index}" for role, index in map(role_of, range(ranks))]


def tell(pipe: IO[bytes], work: bytes, rank: int, addresses: list[str], fed: bool) -> None:
    """The first message: a pickle, over the pipe that only parent and child have. `work` is that of (main, job)."""
    pipes.write(pipe, pickle.dumps({"work": work, "rank": rank, "peers": addresses, "fed": fed}))


def _feed(pipe: IO[bytes], blocks: Iterator[bytes], epochs: int) -> None:
    """Blocks with their lengths. Spark reads the partition once; later epochs come from the task's memory."""
    tracing.instant(kinds.FEED_PIPE, capacity_bytes=fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES))
    kept: list[bytes] = []
    while True:
        with tracing.span(kinds.READ_BLOCK):
            block = next(blocks, None)
        if block is None:
            break
        if epochs > 1:
            kept.append(block)
        _put(pipe, block)
    for _ in range(epochs - 1):
        for block in kept:
            _put(pipe, block)
    pipes.write_end(pipe)


def _put(pipe: IO[bytes], block: bytes) -> None:
    with tracing.span(kinds.PUT, {"waits_for": [kinds.WAIT_TRAINER]}, bytes=len(block)):
        pipes.write(pipe, block)
