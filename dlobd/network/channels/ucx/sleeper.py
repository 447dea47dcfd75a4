"""Where one thread sleeps that waits for UCX. Each of a worker's threads has its own, so that no wake-up is taken by
another."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any


class Sleeper:
    """Of one thread at a time.

    Attributes:
        asleep: it sleeps, or is about to; changed with the worker's lock held.

    Args:
        events: UCX's descriptor, which wakes it once the worker is armed.
        link: the TCP connection beside it, which wakes it when the peer goes; None if the peer has gone.
    """

    def __init__(self, events: int, link: int | None) -> None:
        self.asleep = False
        self._found: Any = None
        self._done: Callable[[], Any] | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._link = link
        for descriptor in (self._wake, events, *(() if link is None else (link,))):
            self._poll.register(descriptor, select.POLLIN)

    def fall_asleep(self, done: Callable[[], Any]) -> None:
        """Before `sleep`: `done` is what this thread waits for."""
        self.asleep, self._done = True, done

    def sleep(self, within_s: float) -> bool:
        """Without the lock, until something happens: whether it was the peer's going."""
        woken = {descriptor for descriptor, _ in self._poll.poll(within_s * 1e3)}
        if self._wake in woken:
            os.eventfd_read(self._wake)
        return self._link in woken

    def wake_up(self) -> Any:
        """After `sleep`: what another thread has found for it meanwhile."""
        found, self._found, self.asleep, self._done = self._found, None, False, None
        return found

    def look(self) -> None:
        """By another thread that has let UCX move: wakes it if what it waits for has come."""
        if self._done is not None and (found := self._done()):
            self._found, self._done = found, None
            self.wake()

    def wake(self) -> None:
        """It looks for itself."""
        os.eventfd_write(self._wake, 1)

    def forget_link(self) -> None:
        """It would wake it at once from now on."""
        if self._link is not None:
            self._poll.unregister(self._link)
            self._link = None

    def close(self) -> None:
        """Nobody sleeps any more."""
        os.close(self._wake)
