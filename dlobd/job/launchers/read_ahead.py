"""A feed whose blocks are taken before the trainer asks for them, by a thread of its own.

TensorFlowOnSpark feeds each epoch by a Spark task of its own, which ends once its blocks are taken: without a reserve
the trainer waits while the next one starts, and while its own process and the queue manager's hand over each block.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dlobd import spans as kinds
from dlobd import tracing

END_S = 5.0
"""For the thread to end after `stop`."""


class ReadAhead:
    """See `dlobd.job.launchers.base.Feed`.

    Args:
        take: the next block, or None at the end of the feed; called by the thread.
        wanted: how many blocks the trainer asks for at most; no more than these are taken.
        ahead: how many blocks may have been taken that the trainer has not asked for; at least 1.
        stop: says that no more are wanted, and ends a `take` that still waits for one.
    """

    def __init__(
        self,
        take: Callable[[], bytes | None],
        wanted: int,
        ahead: int,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._take = take
        self._stop = stop
        self._stopped = False
        self._wanted = wanted
        self._ahead = ahead
        self._blocks: deque[bytes] = deque()
        self._ended = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="dlobd-reader", daemon=True)
        self._thread.start()

    def next_block(self) -> bytes | None:
        """The next block, or None once the feed has ended. Raises what `take` raised, once no block is left."""
        with self._changed:
            if not self._blocks and not self._ended:
                with tracing.span(kinds.AWAIT_BLOCK):
                    self._changed.wait_for(lambda: self._blocks or self._ended)
            if self._blocks:
                block = self._blocks.popleft()
                self._changed.notify_all()
                return block
        if self._failure:
            raise self._failure
        return None

    def stop(self) -> None:
        """See the contract. What was taken ahead is dropped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._stop()
        self._thread.join(END_S)

    def _read(self) -> None:
        failure = None
        try:
            with tracing.span(kinds.READ_AHEAD):
                for _ in range(self._wanted):
                    block = self._take()
                    if block is None or self._stopped:
                        break
                    self._keep(block)
        except BaseException as error:  # noqa: BLE001  the trainer raises it: this thread has nobody to tell
            failure = error
        with self._changed:
            self._failure = failure
            self._ended = True
            self._changed.notify_all()

    def _keep(self, block: bytes) -> None:
        with self._changed:
            self._blocks.append(block)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._blocks) < self._ahead or self._stopped)
