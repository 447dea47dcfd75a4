"""The status of a job's ranks, known to its driver from their messages and, at intervals, from their markers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.description import Markers
from dlobd.job.launchers.base import FIRST_LOOK_S, LONGEST_PAUSE_S
from dlobd.job.rank_status import StatusServer

SETTLE_S = 0.5
"""Wait for the report of a death after a failure: a peer of the dead rank may have reported first."""


class JobStatus:
    """See `dlobd.job.launchers.base.Status`. Its pickle, for executors, contains the markers only.

    Args:
        server: receives the messages; None if the driver cannot listen: then only the markers are read.
    """

    def __init__(self, markers: Markers, server: StatusServer | None) -> None:
        self._markers = markers
        self._server = server
        self._lock = threading.Lock()
        self._marked: tuple[frozenset[int], str | None] = (frozenset(), None)
        self._pause_s = FIRST_LOOK_S
        self._next_s = time.monotonic() + FIRST_LOOK_S

    def __reduce__(self) -> tuple[Callable[[Markers], Markers], tuple[Markers]]:
        return _unpickled, (self._markers,)

    def finished(self) -> frozenset[int]:
        """See the contract."""
        self._read_if_due()
        return self._marked[0] | (self._server.done() if self._server else frozenset())

    def failure(self) -> str | None:
        """See the contract."""
        reported = self._server.failure() if self._server else None
        if reported is None:
            self._read_if_due()
        return reported or self._marked[1]

    def final_failure(self) -> str | None:
        """See the contract."""
        reported = self._server.final_failure(SETTLE_S) if self._server else None
        if reported is None:
            self._read()
        if failure := reported or self._marked[1]:
            tracing.instant(kinds.TRAINING_FAILED, cause=failure)
        return failure

    def wait(self, finished: frozenset[int], timeout_s: float) -> None:
        """See the contract."""
        if self._server:
            self._server.wait(finished, timeout_s)
        else:
            time.sleep(timeout_s)

    def report_failure(self, cause: str) -> None:
        """See the contract."""
        self._markers.report_failure(cause)

    def report_death(self, cause: str) -> None:
        """See the contract."""
        self._markers.report_death(cause)

    def _read_if_due(self) -> None:
        with self._lock:
            if time.monotonic() < self._next_s:
                return
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._next_s = time.monotonic() + self._pause_s
        self._read()

    def _read(self) -> None:
        ranks, failure = self._markers.read()
        self._marked = frozenset(ranks), failure


def _unpickled(markers: Markers) -> Markers:
    return markers
