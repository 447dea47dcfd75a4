"""dlobd's own launcher: Spark's barrier mode, one partition per rank, the trainer in a new child process.

    task of rank r:  start child (it imports TensorFlow at once) -> all-gather addresses -> send the assignment
                     -> with input "feed", feed blocks through a pipe -> wait for the child's end

It needs no server, poll or sleep: a barrier stage starts and fails as a whole. The child leaves no state in the Python
worker, which Spark may reuse.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import pickle
import secrets
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, BinaryIO

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.device_config import VISIBLE
from dlobd.job.launchers import trainer_process
from dlobd.job.launchers.addresses import driver_host, rank_address
from dlobd.job.launchers.base import Main, TrainingFailed, rank_name, recorded_reads
from dlobd.job.launchers.failure import MemoryGroup, exit_status, failure_line
from dlobd.job.launchers.liveness import await_joined, uses_tensorflow_servers, watched

if TYPE_CHECKING:
    from pyspark import RDD, BarrierTaskContext, SparkContext

    from dlobd.job.description import Job, Markers
    from dlobd.job.rank_status import JobStatus

PIPE_BYTES = 1 << 20  # capacity of the feed's pipe: about a dozen blocks. Linux allows this size to ordinary users.
MAX_LINE_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 5.0
BARRIER_TIMEOUT_S = 120  # timeout of the all-gather. All tasks start together.


class BarrierLauncher:
    """Launcher of a chief and workers."""

    def spark_conf(self) -> dict[str, str]:
        return {
            "spark.python.daemon.module": "dlobd.job.launchers.worker_daemon",
            "spark.barrier.sync.timeout": str(BARRIER_TIMEOUT_S),  # Spark's default is a year
        }

    def launch(self, sc: SparkContext, main: Main, job: Job, blocks: RDD[bytes] | None, status: JobStatus) -> None:
        rdd: RDD[int] | RDD[bytes] = sc.parallelize(range(job.workers), job.workers) if blocks is None else blocks
        try:
            with listen_to_logs(driver_host(sc)) as (address, senders), watched(sc, status):
                fed_epochs = job.fed_epochs if blocks is not None else 0
                task = _RankTask(pickle.dumps((main, job)), fed_epochs, status, address, uses_tensorflow_servers(job))
                with tracing.span(kinds.BARRIER_JOB):
                    rdd.barrier().mapPartitions(task).collect()
        except Exception as error:
            missing = {f"rank {rank}" for rank in range(job.workers)} - senders
            # Spark reports the timeout, unless the connection of a waiting task ends first
            if missing and any(words in str(error) for words in ("all barrier sync requests", "in allGather")):
                cause = f"{' and '.join(sorted(missing))} did not reach the barrier within {BARRIER_TIMEOUT_S} s"
                raise TrainingFailed(cause) from error
            raise TrainingFailed(failure_line(error, status)) from error
        if failure := status.failure():
            raise TrainingFailed(failure)


class _RankTask:
    """A barrier task; its partition ID is the rank.

    Args:
        work: pickle of (main, job). Only the child unpickles it, because this imports TensorFlow's modules.
        watch: True if ranks join TensorFlow's cluster; rank 0's task then checks that all ranks join.
    """

    def __init__(self, work: bytes, epochs: int, status: JobStatus, logs: LogAddress, watch: bool) -> None:
        self._work = work
        self._epochs = epochs
        self._status = pickle.dumps(status)
        self._logs = logs
        self._watch = watch

    def __call__(self, blocks: Iterator[bytes]) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        rank = context.partitionId()
        with tracing.span(kinds.BARRIER_TASK, task_attempt=context.taskAttemptId()):
            gpu = context.resources().get("gpu")
            assigned = {VISIBLE: ",".join(gpu.addresses)} if gpu else {}
            with tracing.span(kinds.START_CHILD) as span:
                child = trainer_process.start({**os.environ, **assigned}, piped_output=True)
                span.note(pid=child.pid)
            try:
                self._run(context, rank, child, blocks)
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        yield rank

    def _run(
        self, context: BarrierTaskContext, rank: int, child: subprocess.Popen[bytes], blocks: Iterator[bytes]
    ) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        memory = MemoryGroup.read()
        logs = threading.Thread(target=forward_logs, args=(child.stdout, f"rank {rank}", self._logs), daemon=True)
        logs.start()
        host = rank_address() or socket.gethostbyname(socket.gethostname())
        with socket.socket() as reserved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((host, 0))
            address = f"{host}:{reserved.getsockname()[1]}"
            with tracing.span(kinds.ALL_GATHER_ADDRESSES, address=address):
                addresses = context.allGather(address)
        with tracing.span(kinds.TELL_PLACE):
            trainer_process.assign(child.stdin, self._work, rank, addresses, fed=self._epochs > 0)
        ended = threading.Event()
        if rank == 0 and self._watch:
            servers = {rank_name(peer): address for peer, address in enumerate(addresses)}
            watch = threading.Thread(target=await_joined, args=(servers, self._report_failure, ended), daemon=True)
            watch.start()
        # the child closed its stdin or ended; its exit code, read below, shows which
        with suppress(BrokenPipeError):
            if self._epochs:
                _feed(child.stdin, blocks, self._epochs)
            child.stdin.close()
        with tracing.span(kinds.WAIT_FOR_TRAINER):
            code = child.wait()
        ended.set()
        logs.join(timeout=5)
        if code:
            cause = f"trainer process {child.pid} of rank {rank} died: {exit_status(code, memory)}"
            if code < 0:
                tracing.instant(kinds.TRAINER_DIED, cause=cause, pid=child.pid, code=code)
                self._markers().report_death(cause)
            else:
                # only the first report counts: this report is ignored if the trainer has reported its own failure
                self._report_failure(cause)
            raise RuntimeError(cause)

    def _markers(self) -> Markers:
        # unpickled only if needed, because it needs imports
        markers: Markers = pickle.loads(self._status)
        return markers

    def _report_failure(self, cause: str) -> None:
        self._markers().report_failure(cause)


def _feed(pipe: IO[bytes], blocks: Iterator[bytes], epochs: int) -> None:
    """Feed all epochs. Spark reads the partition once; the task keeps the blocks in memory for later epochs."""
    tracing.instant(kinds.FEED_PIPE, capacity_bytes=fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES))
    epoch: list[bytes] = []
    for block in recorded_reads(blocks, kinds.READ_BLOCK):
        if epochs > 1:
            epoch.append(block)
        _put(pipe, block)
    for _ in range(epochs - 1):
        for block in epoch:
            _put(pipe, block)
    trainer_process.write_end(pipe)


def _put(pipe: IO[bytes], block: bytes) -> None:
    with tracing.span(kinds.PUT, {"waits_for": [kinds.WAIT_TRAINER]}, bytes=len(block)):
        trainer_process.write(pipe, block)


@dataclass(frozen=True, slots=True)
class LogAddress:
    """Address of the driver's listener. The secret is sent with the job's Python functions, never in a log."""

    host: str
    port: int
    secret: str


@contextmanager
def listen_to_logs(host: str) -> Iterator[tuple[LogAddress, set[str]]]:
    """Print the trainers' log lines on stdout until the context ends, so that the user need not open containers' logs.

    Yields the address, and the growing set of senders."""
    secret = secrets.token_hex(16)
    senders: set[str] = set()

    class Handler(socketserver.StreamRequestHandler):
        timeout = None

        def handle(self) -> None:
            if not hmac.compare_digest(self.rfile.readline(MAX_LINE_BYTES).strip(), secret.encode()):
                return
            senders.add(self.rfile.readline(MAX_LINE_BYTES).decode(errors="replace").strip())
            while line := self.rfile.readline(MAX_LINE_BYTES):
                sys.stdout.write(line.decode(errors="replace").rstrip() + "\n")
                sys.stdout.flush()

    with socketserver.ThreadingTCPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield LogAddress(host, server.server_address[1], secret), senders
        finally:
            server.shutdown()


def forward_logs(source: BinaryIO, name: str, address: LogAddress) -> None:
    """Send every line of `source` to the driver as `name: line`, and to stderr, which is the container's log.

    If the driver is unreachable, the lines are only in the container's log.
    """
    try:
        sink = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
        sink.sendall(f"{address.secret}\n{name}\n".encode())
    except OSError:
        sink = None
    for line in iter(lambda: source.readline(MAX_LINE_BYTES), b""):
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()
        if sink is not None:
            try:
                sink.sendall(name.encode() + b": " + line.rstrip() + b"\n")
            except OSError:
                sink = None
    if sink is not None:
        sink.close()
