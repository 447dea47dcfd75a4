"""The same training as plain processes, one per rank: what a job costs without Spark, YARN and HDFS.

    parent: start a process per rank (each imports TensorFlow at once) -> tell each its place -> wait for all

The parent is the job's one process that dlobd starts and watches; ranks die with it. They meet over loopback.
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
from typing import TYPE_CHECKING, Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.barrier import in_words, start_child, tell
from dlobd.job.launchers.base import Done, Main, Roles, TrainingFailed
from dlobd.job.launchers.death import MemoryGroup, how
from dlobd.job.launchers.own_address import own_address
from dlobd.job.launchers.visible_gpus import VISIBLE, address
from dlobd.job.launchers.watching import LOOK_S, JoinWatch, meets_by_tensorflow

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

HOST = "127.0.0.1"
GRACE_S = 5.0
"""For ranks to end after SIGTERM, once one of them has failed."""


class NativeLauncher:
    """See `dlobd.job.launchers.base`. Chief and workers only; nothing is fed."""

    def spark_conf(self) -> dict[str, str]:
        """Nothing: there is no Spark."""
        return {}

    def launch(
        self,
        sc: SparkContext | None,
        main: Main,
        job: Any,
        roles: Roles,
        blocks: RDD[bytes] | None,
        epochs: int,
        done: Done,
    ) -> None:
        """See `dlobd.job.launchers.base`; `sc` and `blocks` are None."""
        # what a killed rank leaves there goes with the job
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=job.run_dir) as tmp_dir:
            self._launch(main, job, roles, done, {**os.environ, "TMPDIR": tmp_dir})

    def _launch(self, main: Main, job: Any, roles: Roles, done: Done, environment: dict[str, str]) -> None:
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            with tracing.span(kinds.START_RANKS):
                for rank in range(roles.ranks):
                    spans = Path(job.spans_dir).parent / f"rank-{rank}"
                    # one by one: what was started is ended, also when the next one cannot be
                    gpu = {VISIBLE: address(rank)} if job.device == "gpu" else {}
                    ranks.append(start_child(env={**environment, **gpu, "LOG_DIRS": str(spans)}))
            with tracing.span(kinds.TELL_PLACES):
                work = pickle.dumps((main, job))
                addresses = free_addresses(roles.ranks)
                for rank, process in enumerate(ranks):
                    assert process.stdin is not None
                    tell(process.stdin, work, rank, addresses, fed=False)
                    process.stdin.close()
            with tracing.span(kinds.WAIT_FOR_RANKS):
                servers = dict(zip(in_words(roles.ranks), addresses, strict=True)) if meets_by_tensorflow(job) else {}
                wait(ranks, done, JoinWatch(servers))
        except BrokenPipeError:
            wait(ranks, done)  # one has ended before it was told its place: this says which, and how
            raise
        finally:
            end(ranks)


def free_addresses(count: int) -> list[str]:
    """Free ports for TensorFlow's servers, all different because they are held together."""
    with ExitStack() as held:
        host, found = own_address() or HOST, []
        for _ in range(count):
            reserved = held.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((host, 0))
            found.append(f"{host}:{reserved.getsockname()[1]}")
        return found


def wait(ranks: list[subprocess.Popen[bytes]], done: Done, joining: JoinWatch | None = None) -> None:
    """Returns when all ranks have ended well. The job's own deadline is its parent's: `dlobd.run.submit`.

    Raises:
        TrainingFailed: one has not, or some do not join.
    """
    with ExitStack() as opened:
        memory = MemoryGroup.read()
        poller = select.poll()
        rank_of: dict[int, int] = {}
        for rank, process in enumerate(ranks):
            fd = os.pidfd_open(process.pid)
            opened.callback(os.close, fd)
            poller.register(fd, select.POLLIN)
            rank_of[fd] = rank
        while rank_of:
            events = poller.poll(LOOK_S * 1000)
            if joining and (cause := joining.look()):
                raise TrainingFailed(cause)
            for fd, _ in events:
                poller.unregister(fd)
                rank = rank_of.pop(fd)
                code = ranks[rank].wait()
                tracing.instant(kinds.RANK_EXITED, rank=rank)
                if code:
                    died = f"trainer process {ranks[rank].pid} of rank {rank} died: {how(code, memory)}"
                    raise TrainingFailed(done.last_word() or died)


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs: after a failure, ranks wait for the one that is gone."""
    left = [process for process in ranks if process.poll() is None]
    for process in left:
        process.terminate()
    for process in left:
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
