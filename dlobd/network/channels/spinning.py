"""Yields of the core between the polls of a waiting thread."""

import os
import time

SLOW_S = 100e-6
"""Duration of a yield that shows another runnable process on the core; otherwise a yield takes about 1 us."""

REST_S = 1.0
"""Time without yields after a slow one. A yield gives away a time slice of milliseconds, but a sleeping thread is woken
as soon as its message arrives."""


class Yields:
    """Yields of one thread or connection. On a busy core they stop for REST_S."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def allowed(self) -> bool:
        """Return True if the core has not been busy lately."""
        return time.monotonic() >= self._next_s

    def once(self) -> bool:
        """Yield the core; return False if another process used it, so that the caller should sleep."""
        start_s = time.monotonic()
        os.sched_yield()
        end_s = time.monotonic()
        if end_s - start_s < SLOW_S:
            return True
        self._next_s = end_s + REST_S
        return False
