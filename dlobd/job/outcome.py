"""How the ranks of a job are doing, as its driver knows it: what they told it, and now and then what they left."""

from __future__ import annotations

import threading
import time
from typing import Any

from dlobd.job.description import Markers
from dlobd.job.launchers.base import FIRST_LOOK_S, LONGEST_PAUSE_S
from dlobd.job.notices import Notices

GRIEF_S = 0.5
"""How long a death is waited for once something has failed: a peer of the rank that died may have spoken first."""


class Outcome:
    """See `dlobd.job.launchers.base.Done`. On an executor, where it comes by pickle, it is the markers alone.

    Args:
        notices: None where nothing can be told: then the markers say all.
    """

    def __init__(self, markers: Markers, notices: Notices | None) -> None:
        self._markers = markers
        self._notices = notices
        self._lock = threading.Lock()
        self._seen: tuple[frozenset[int], str | None] = (frozenset(), None)
        self._pause_s = FIRST_LOOK_S
        self._next_s = time.monotonic() + FIRST_LOOK_S

    def __reduce__(self) -> Any:
        return _same, (self._markers,)

    def finished(self) -> frozenset[int]:
        """Ranks that are done."""
        self._look_in_time()
        return self._seen[0] | (self._notices.done() if self._notices else frozenset())

    def failure(self) -> str | None:
        """The cause in one line, if a rank has failed."""
        told = self._notices.failure() if self._notices else None
        if told is None:
            self._look_in_time()
        return told or self._seen[1]

    def last_word(self) -> str | None:
        """The same, after one more look at the markers: something has failed, and nobody may have told why."""
        told = self._notices.last_word(GRIEF_S) if self._notices else None
        if told is None:
            self._look()
        return told or self._seen[1]

    def wait(self, known: frozenset[int], within_s: float) -> None:
        """Returns as soon as more ranks than those are done, or one has failed; at the latest after so long."""
        if self._notices:
            self._notices.wait(known, within_s)
        else:
            time.sleep(within_s)

    def report_failure(self, cause: str) -> None:
        """As `Markers`."""
        self._markers.report_failure(cause)

    def report_death(self, cause: str) -> None:
        """As `Markers`."""
        self._markers.report_death(cause)

    def _look_in_time(self) -> None:
        with self._lock:
            if time.monotonic() < self._next_s:
                return
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._next_s = time.monotonic() + self._pause_s
        self._look()

    def _look(self) -> None:
        ranks, failure = self._markers.look()
        self._seen = frozenset(ranks), failure


def _same(markers: Markers) -> Markers:
    return markers
