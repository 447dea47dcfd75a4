"""Room for one message between two threads: one of gRPC's, and one that sends or receives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dlobd.network.channels.base import ChannelError, DeadlinePassed


class Mailbox:
    """One thread puts messages in, another takes them out; either waits for the other, and both are woken by `end`.

    Args:
        peer: who is at the other end of the connection, for error messages.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._changed = threading.Condition()
        self._message: bytes | None = None
        self._put = self._taken = 0  # how many were
        self._ended: ChannelError | None = None

    def put(self, message: bytes, wanted: Callable[[], bool]) -> None:
        """Waits until there is room, or the message is not `wanted` any more; `look` makes it ask that again.

        Raises:
            ChannelError: what `end` was told.
        """
        with self._changed:
            self._wait(lambda: self._message is None or not wanted(), None)
            self._check()
            if wanted():
                self._place(message)

    def hand_over(self, message: bytes, deadline_s: float) -> None:
        """Returns once the message was taken; one that was not in time is withdrawn.

        Raises:
            DeadlinePassed, and what `end` was told.
        """
        with self._changed:
            self._check()
            number = self._place(message)
            try:
                self._wait(lambda: self._taken >= number, deadline_s)
            finally:
                if self._taken < number:
                    self._message = None
            if self._taken < number:
                self._check()

    def take(self, deadline_s: float | None = None) -> bytes:
        """The message, once there is one; what was put in before the end is still given out.

        Raises:
            DeadlinePassed, and what `end` was told.
        """
        with self._changed:
            self._wait(lambda: self._message is not None, deadline_s)
            message, self._message = self._message, None
            if message is None:
                self._check()
                raise AssertionError("a wait without a message and without an end")
            self._taken = self._put
            self._changed.notify_all()
            return message

    def end(self, error: ChannelError, at_once: bool = False) -> None:
        """Wakes everybody with this error; the first one stays.

        Args:
            at_once: what is in it is given up, and the error replaces an earlier one.
        """
        with self._changed:
            if at_once:
                self._message = None
            if at_once or self._ended is None:
                self._ended = error
            self._changed.notify_all()

    def look(self) -> None:
        """Whoever waits to put asks again whether its message is wanted."""
        with self._changed:
            self._changed.notify_all()

    def _place(self, message: bytes) -> int:
        self._message = message
        self._put += 1
        self._changed.notify_all()
        return self._put

    def _check(self) -> None:
        if self._ended is not None:
            # a new one for each caller: what is raised twice grows a traceback of both
            raise type(self._ended)(str(self._ended))

    def _wait(self, done: Callable[[], bool], deadline_s: float | None) -> None:
        """Until `done`, or the end. Raises DeadlinePassed."""
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        if not self._changed.wait_for(lambda: done() or self._ended is not None, left_s):
            raise DeadlinePassed(f"{self._peer} neither took nor sent a message in time")
