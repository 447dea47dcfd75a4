"""What a launcher's driver watches while ranks work, so that none of them is waited for in vain.

A trainer that waits for its peers does so inside of TensorFlow's C++, which holds the interpreter: no thread of its
own runs then, and not even SIGTERM ends it. So whether all have joined is asked from outside: a rank that has come so
far has started its TensorFlow server, which listens.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dlobd.axes import EXCHANGES
from dlobd.hadoop.failures import failures
from dlobd.job.launchers.base import Done

if TYPE_CHECKING:
    from pyspark import SparkContext

JOIN_PATIENCE_S = 60.0
"""How long ranks wait for one that does not come. All have been started together, and import TensorFlow meanwhile."""

LOOK_S = 2.0
"""Between two looks: at what ranks have left in HDFS, and whether they listen."""

CONNECT_S = 2.0


def meets_by_tensorflow(job: Any) -> bool:
    """Whether ranks start TensorFlow's servers; an exchange of dlobd's own has deadlines of its own."""
    return bool(EXCHANGES.declared(job.exchange).inside_step)


class JoinWatch:
    """Whether ranks join TensorFlow's cluster.

    Args:
        addresses: rank in words -> host:port of its TensorFlow server.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._missing = dict(addresses)
        self._all = len(addresses)
        self._next_s = 0.0
        self._first_s: float | None = None  # when the first was seen to listen

    def look(self) -> str | None:
        """Asks those that did not listen yet. Which of them the others have waited for too long, in one line.

        Asks at most every `LOOK_S` seconds.
        """
        if not self._missing or time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + LOOK_S
        for rank, address in list(self._missing.items()):
            if _listens(address):
                del self._missing[rank]
        if not self._missing or len(self._missing) == self._all:
            return None
        self._first_s = self._first_s or time.monotonic()
        if time.monotonic() - self._first_s < JOIN_PATIENCE_S:
            return None
        who = " and ".join(f"{rank} at {address}" for rank, address in self._missing.items())
        return f"{who} did not join TensorFlow's cluster within {JOIN_PATIENCE_S:.0f} s of the others"


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError:
        return False
    return True


@contextmanager
def watched(sc: SparkContext, done: Done, joining: JoinWatch | None = None) -> Iterator[None]:
    """Ends Spark's jobs once a rank has left a failure marker, or some do not join: the job's own tasks may hang."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(LOOK_S):
            if joining and (cause := joining.look()):
                done.report_failure(cause)
            try:
                failed = done.failure()
            except failures():
                continue  # a process that needs HDFS will say so
            if failed:
                sc.cancelAllJobs()
                return

    thread = threading.Thread(target=watch, name="dlobd-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LOOK_S + CONNECT_S)


def await_joined(addresses: Mapping[str, str], report: Callable[[str], None], ended: threading.Event) -> None:
    """Reports ranks that do not join, from a place that knows their addresses, until `ended`."""
    joining = JoinWatch(addresses)
    while not ended.wait(LOOK_S):
        if cause := joining.look():
            report(cause)
            return
