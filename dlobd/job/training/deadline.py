"""Deadlines for a trainer's waits that could last forever.

Such a wait is inside third-party code, such as a queue's socket, which dlobd cannot interrupt by an exception. So a
thread checks the deadline, and ends the process with the cause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CHECK_S = 0.5  # interval between checks: the largest delay of a deadline


class Deadlines:
    """Deadlines of a trainer, whose main thread has one wait at a time.

    Args:
        give_up: called with the cause after a deadline, in the checking thread; it should not return.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up
        self._watched: tuple[float, Callable[[], str]] | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, cause: Callable[[], str]) -> Iterator[None]:
        """Give up unless the block ends in time. `cause` returns the cause in one line; it is called only then."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="dlobd-deadline", daemon=True)
            self._thread.start()
        self._watched = time.monotonic() + seconds, cause
        try:
            yield
        finally:
            self._watched = None

    def _watch(self) -> None:
        while True:
            time.sleep(CHECK_S)
            watched = self._watched
            if watched and time.monotonic() > watched[0]:
                self._give_up(watched[1]())
                self._watched = None
