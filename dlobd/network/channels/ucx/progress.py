"""How threads wait for UCX, which moves only while a thread calls it, one at a time.

Several may wait at once: one that sends, one that receives, one that serves the peer's access to memory. A thread that
waits first calls UCX again and again; then it yields its core between the calls, so that on a shared one the peer runs;
then it arms the worker's descriptor and sleeps. Who lets UCX move looks for those that sleep too, and arms again when
it leaves.

That the peer has gone is seen on a TCP connection beside UCX's, whatever the transport.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from dlobd.network.channels.base import Closed, DeadlinePassed, PeerClosed
from dlobd.network.channels.ucx import declarations as c
from dlobd.network.channels.ucx.sleeper import Sleeper

BURST, SPIN, YIELD = 8, 16, 100
"""Calls of UCX with the lock held; after how many such bursts without a result a thread offers its core to others, and
after how many more it sleeps. That is about 100 us, in which a message of a few KB comes over an idle link, and then as
much as a wake-up costs several times over."""

TICK_S = 0.1
"""The longest sleep: what wakes nobody, such as a peer on another host that has vanished, is looked for this often."""

LAST_S = 0.2
"""How long messages may still come once the peer's TCP connection has ended: they take another way."""

CUT = b"!"
"""Said on the TCP connection: a call was given up, and what may still come of it is not to be believed."""


class Progress:
    """Of one UCX worker.

    Attributes:
        lock: held around every call of UCX.
        link: the TCP connection beside it.
        ended, cut: why this end is of no more use: it was closed, or a call was given up.
        gone: why the peer is.
        distrusted: the peer has given up a call: a message of which it still lends the memory may be something else.

    Args:
        peer: for messages.
    """

    def __init__(self, ucp: Any, peer: str) -> None:
        self.ucp = ucp
        self.handle: Any = None
        self.peer = peer
        self.lock = threading.RLock()
        self.link: socket.socket | None = None
        self.ended = self.cut = self.gone = ""
        self.distrusted = False
        self.sleepers: list[Sleeper] = []
        self._sleeping = 0
        self._link_ended = False
        self._gone_s = 0.0

    def until(self, done: Callable[[], Any], sleeper: Sleeper, deadline_s: float, what: str) -> Any:
        """What `done` returns, called with the lock held, once that is true. Raises as `complete`."""
        progress, handle = self.ucp.ucp_worker_progress, self.handle
        spun = 0
        found: Any = None
        while True:
            with self.lock:
                self.check_open(what)
                for _ in range(BURST):
                    if found := found or done():
                        if self._sleeping:
                            self._arm_for_others()
                        return found
                    if progress(handle):
                        spun = 0
                        if self._sleeping:
                            self._tell_others()
                now_s = time.monotonic()
                if self.gone and now_s >= self._gone_s + LAST_S:
                    raise PeerClosed(f"{self.peer} is gone ({self.gone}): UCX cannot {what}")
                if now_s >= deadline_s:
                    self._arm_for_others()
                    raise DeadlinePassed(f"UCX could not {what} in time ({self.peer})")
            spun += 1
            if spun > SPIN + YIELD:
                found = self._sleep(done, sleeper, min(deadline_s - now_s, TICK_S))
            elif spun > SPIN:
                os.sched_yield()

    def _tell_others(self) -> None:
        """With the lock held, after UCX has moved: what has come may be for one that sleeps."""
        for each in self.sleepers:
            if each.asleep:
                each.look()

    def _arm_for_others(self) -> None:
        """With the lock held, by a thread that leaves: UCX wakes those that sleep once for each time that it is
        armed, and this thread may have taken that."""
        while self._sleeping:
            if self.ucp.ucp_worker_arm(self.handle) != c.ERR_BUSY:
                return
            if self.ucp.ucp_worker_progress(self.handle):
                self._tell_others()

    def _sleep(self, done: Callable[[], Any], sleeper: Sleeper, within_s: float) -> Any:
        """Until something happens; what `done` has returned by then, here or by another thread."""
        with self.lock:
            if self.ended or self.cut:
                return None
            if found := done():  # another thread may have let it come
                return found
            if self.ucp.ucp_worker_arm(self.handle) != c.OK:
                return None  # something has come
            within_s = min(within_s, LAST_S) if self.gone else within_s
            sleeper.fall_asleep(done)
            self._sleeping += 1
        peer_goes = False
        try:
            peer_goes = sleeper.sleep(within_s)
        finally:
            with self.lock:
                found = sleeper.wake_up()
                self._sleeping -= 1
        if peer_goes:
            self.look_for_peer()
        return found

    # ---- the peer

    def look_for_peer(self) -> None:
        """Whether it has closed its end, or has given up a call."""
        if self.link is None or self._link_ended:
            return
        try:
            said = self.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._link_ended = True
        self.distrusted = said == CUT
        self.peer_has_gone("it has given up a call" if self.distrusted else "it has closed its connection")

    def check_peer(self, what: str) -> None:
        """Raises PeerClosed where the peer is known to be gone, without waiting for what it may have sent before."""
        self.look_for_peer()
        self.check_open(what)
        if self.gone:
            raise PeerClosed(f"{self.peer} is gone ({self.gone}): UCX cannot {what}")

    def check_trust(self, what: str) -> None:
        """Raises PeerClosed where the peer has given up a call: what has come was perhaps read from memory that was
        something else by then."""
        self.look_for_peer()
        if self.distrusted:
            raise PeerClosed(f"{self.peer} has given up a call: what UCX did {what} is not to be believed")

    def peer_has_gone(self, why: str) -> None:
        """Nothing more will be sent. What is under way is waited for, LAST_S long."""
        with self.lock:
            if not self.gone:
                self.gone, self._gone_s = why, time.monotonic()
                for each in self.sleepers:
                    each.forget_link()

    def wake_all(self) -> None:
        """With the lock held: they look for themselves."""
        if self.handle is not None:
            for each in self.sleepers:
                each.wake()

    def check_open(self, what: str) -> None:
        """Raises Closed where this end is closed, PeerClosed where a call of either end was given up."""
        if self.ended:
            raise Closed(f"the connection to {self.peer} is closed: UCX cannot {what}")
        if self.cut:
            raise PeerClosed(f"the connection to {self.peer} is of no more use, as {self.cut}: UCX cannot {what}")
