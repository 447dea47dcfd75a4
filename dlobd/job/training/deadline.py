"""Deadlines for a trainer's waits that could last for ever.

Such a wait is inside third-party code, such as a queue's socket, which no exception from dlobd reaches. So a thread
watches, and ends the process with its cause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_S = 0.5
"""How often the thread looks: a deadline is late by at most this."""


class Deadlines:
    """Of one trainer, whose main thread waits for one thing at a time.

    Args:
        give_up: called with the cause, in the watching thread, when a deadline has passed; it should not return.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up
        self._watched: tuple[float, Callable[[], str]] | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, cause: Callable[[], str]) -> Iterator[None]:
        """Gives up unless the block ends in time. `cause` says in one line what did not happen; asked only then."""
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
            time.sleep(LOOK_S)
            watched = self._watched
            if watched and time.monotonic() > watched[0]:
                self._give_up(watched[1]())
                self._watched = None
