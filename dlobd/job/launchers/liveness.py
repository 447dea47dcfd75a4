"""Detects ranks that fail, or do not join TensorFlow's cluster, and ends the launcher's wait for them.

A trainer waits for its peers in TensorFlow's C++ code, which holds Python's GIL: no other thread of the trainer runs,
and SIGTERM does not end it. So another process checks that the TensorFlow server of every rank listens.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlobd.axes import EXCHANGES
from dlobd.hadoop.failures import failures

if TYPE_CHECKING:
    from pyspark import SparkContext

    from dlobd.job.description import Job
    from dlobd.job.rank_status import JobStatus

JOIN_TIMEOUT_S = 60.0
"""Longest wait for a rank after the first rank listens. All ranks start together, with the import of TensorFlow."""

CHECK_S = 2.0  # interval between two checks of the markers in HDFS, and of the TensorFlow servers
CONNECT_S = 2.0


def uses_tensorflow_servers(job: Job) -> bool:
    """Return True if ranks start TensorFlow's servers. Exchanges of dlobd have their own timeouts."""
    return bool(EXCHANGES.declared(job.exchange).inside_step)


class JoinWatch:
    """Detector of ranks that do not join TensorFlow's cluster. `addresses`: rank -> host:port of its server."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._missing = dict(addresses)
        self._count = len(addresses)
        self._next_s = 0.0
        self._first_s: float | None = None  # first time at which a rank listened

    def check(self) -> str | None:
        """Connect to the missing servers, at most every `CHECK_S`; return the late ranks in one line, or None."""
        if not self._missing or time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + CHECK_S
        for rank, address in list(self._missing.items()):
            if _listens(address):
                del self._missing[rank]
        if not self._missing or len(self._missing) == self._count:
            return None
        self._first_s = self._first_s or time.monotonic()
        if time.monotonic() - self._first_s < JOIN_TIMEOUT_S:
            return None
        missing = " and ".join(f"{rank} at {address}" for rank, address in self._missing.items())
        return f"{missing} did not join TensorFlow's cluster within {JOIN_TIMEOUT_S:.0f} s of the first rank"


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError:
        return False
    return True


@contextmanager
def watched(sc: SparkContext, status: JobStatus, join_watch: JoinWatch | None = None) -> Iterator[None]:
    """Cancel Spark's jobs if a rank fails or does not join, because their tasks may hang."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(CHECK_S):
            if join_watch and (cause := join_watch.check()):
                status.report_failure(cause)
            try:
                failed = status.failure()
            except failures():
                continue  # a process that needs HDFS will report it
            if failed:
                sc.cancelAllJobs()
                return

    thread = threading.Thread(target=watch, name="dlobd-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(CHECK_S + CONNECT_S)


def await_joined(addresses: Mapping[str, str], report: Callable[[str], None], ended: threading.Event) -> None:
    """Check until `ended` is set that all ranks join; call `report` with the late ranks."""
    join_watch = JoinWatch(addresses)
    while not ended.wait(CHECK_S):
        if cause := join_watch.check():
            report(cause)
            return
