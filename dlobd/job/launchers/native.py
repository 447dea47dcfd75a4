"""Launcher of plain processes, one per rank: the baseline of a job without Spark, YARN and HDFS.

    parent: start a process per rank (each process imports TensorFlow at once) -> send the assignments -> wait for all

dlobd starts and watches only the parent; ranks die with the parent. Ranks connect over loopback.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.device_config import VISIBLE, gpu_id
from dlobd.job.launchers import trainer_process
from dlobd.job.launchers.addresses import rank_address
from dlobd.job.launchers.base import Main, TrainingFailed, rank_name
from dlobd.job.launchers.failure import MemoryGroup, exit_status
from dlobd.job.launchers.liveness import CHECK_S, JoinWatch, uses_tensorflow_servers

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from dlobd.job.description import Job
    from dlobd.job.rank_status import JobStatus

HOST = "127.0.0.1"
GRACE_S = 5.0  # timeout between SIGTERM and SIGKILL, after a rank has failed


class NativeLauncher:
    """Launcher of a chief and workers, without Spark and without a feed."""

    def spark_conf(self) -> dict[str, str]:
        return {}

    def launch(
        self, sc: SparkContext | None, main: Main, job: Job, blocks: RDD[bytes] | None, status: JobStatus
    ) -> None:
        # the job's directory is deleted later, with the files of a killed rank
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=job.run_dir) as tmp_dir:
            self._launch(main, job, status, {**os.environ, "TMPDIR": tmp_dir})

    def _launch(self, main: Main, job: Job, status: JobStatus, environment: dict[str, str]) -> None:
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            with tracing.span(kinds.START_RANKS):
                for rank in range(job.workers):
                    spans = Path(job.spans_dir).parent / f"rank-{rank}"
                    gpu = {VISIBLE: gpu_id(rank)} if job.device == "gpu" else {}
                    # appended one by one, so that `end` ends all started ranks if a later rank does not start
                    ranks.append(trainer_process.start({**environment, **gpu, "LOG_DIRS": str(spans)}))
            with tracing.span(kinds.TELL_PLACES):
                work = pickle.dumps((main, job))
                addresses = free_addresses(job.workers)
                for rank, process in enumerate(ranks):
                    assert process.stdin is not None
                    trainer_process.assign(process.stdin, work, rank, addresses, fed=False)
                    process.stdin.close()
            with tracing.span(kinds.WAIT_FOR_RANKS):
                servers = {rank_name(rank): address for rank, address in enumerate(addresses)}
                wait(ranks, status, JoinWatch(servers if uses_tensorflow_servers(job) else {}))
        except BrokenPipeError:
            wait(ranks, status)  # raises the cause if a rank has ended before its assignment
            raise
        finally:
            end(ranks)


def free_addresses(count: int) -> list[str]:
    """Return addresses with free ports for TensorFlow's servers. All ports are open at once, so that they differ."""
    with ExitStack() as sockets:
        host = rank_address() or HOST
        addresses: list[str] = []
        for _ in range(count):
            reserved = sockets.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((host, 0))
            addresses.append(f"{host}:{reserved.getsockname()[1]}")
        return addresses


def wait(ranks: list[subprocess.Popen[bytes]], status: JobStatus, join_watch: JoinWatch | None = None) -> None:
    """Wait until all ranks have succeeded. Raises TrainingFailed if one fails. `dlobd.run` enforces the timeout."""
    with ExitStack() as stack:
        memory = MemoryGroup.read()
        poller = select.poll()
        rank_of: dict[int, int] = {}
        for rank, process in enumerate(ranks):
            fd = os.pidfd_open(process.pid)
            stack.callback(os.close, fd)
            poller.register(fd, select.POLLIN)
            rank_of[fd] = rank
        while rank_of:
            events = poller.poll(CHECK_S * 1000)
            if join_watch and (cause := join_watch.check()):
                raise TrainingFailed(cause)
            for fd, _ in events:
                poller.unregister(fd)
                rank = rank_of.pop(fd)
                code = ranks[rank].wait()
                tracing.instant(kinds.RANK_EXITED, rank=rank)
                if code:
                    cause = f"trainer process {ranks[rank].pid} of rank {rank} died: {exit_status(code, memory)}"
                    raise TrainingFailed(status.final_failure() or cause)


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """End the running ranks: after a failure they would wait for the failed rank."""
    running = [process for process in ranks if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
