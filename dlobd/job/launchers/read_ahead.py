"""A feed with a thread that reads blocks before the trainer requests them.

TensorFlowOnSpark feeds each epoch by a separate Spark task, which ends when the trainer has taken its blocks. Without
blocks in reserve, the trainer waits for the start of the next task, and for the transfer of each block.
"""

import threading
from collections import deque
from collections.abc import Callable

from dlobd import spans as kinds
from dlobd import tracing

END_S = 5.0  # timeout for the thread to end after `stop`


class ReadAhead:
    """Feed with a reserve of blocks.

    Args:
        take: returns the next block, or None at the end of the feed; called by the thread.
        limit: the largest number of blocks of the feed.
        ahead: the largest number of blocks in the reserve; at least 1.
        stop: stops the feed, and ends a `take` that waits for a block.
    """

    def __init__(
        self, take: Callable[[], bytes | None], limit: int, ahead: int, stop: Callable[[], None] = lambda: None
    ) -> None:
        self._take = take
        self._stop = stop
        self._stopped = False
        self._limit = limit
        self._ahead = ahead
        self._blocks: deque[bytes] = deque()
        self._ended = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="dlobd-reader", daemon=True)
        self._thread.start()

    def next_block(self) -> bytes | None:
        """Return the next block, or None after the end of the feed. Raises errors of `take` after the last block."""
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
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._stop()
        self._thread.join(END_S)

    def _read(self) -> None:
        failure = None
        try:
            with tracing.span(kinds.READ_AHEAD):
                for _ in range(self._limit):
                    block = self._take()
                    if block is None or self._stopped:
                        break
                    self._put(block)
        except BaseException as error:  # noqa: BLE001  `next_block` raises it in the trainer
            failure = error
        with self._changed:
            self._failure = failure
            self._ended = True
            self._changed.notify_all()

    def _put(self, block: bytes) -> None:
        with self._changed:
            self._blocks.append(block)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._blocks) < self._ahead or self._stopped)
