"""Where the threads of a parameter server meet, one for each worker; like `threading.Barrier`, but it knows who is late
and why it cannot go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dlobd.network.collectives.mesh import ExchangeFailed


class Gathering:
    """Of so many workers. What has failed stays so.

    Args:
        within_s: how long the first one waits for the last.
    """

    def __init__(self, workers: int, within_s: float) -> None:
        self._workers = workers
        self._within_s = within_s
        self._changed = threading.Condition()
        self._present: set[int] = set()
        self._met = 0
        self._failure = ""

    def meet(self, rank: int, action: Callable[[], None]) -> None:
        """Returns once all have come and the last one has done its action.

        Raises:
            ExchangeFailed: somebody is late, or `fail` was called.
        """
        with self._changed:
            number = self._met
            self._check()
            self._present.add(rank)
            if len(self._present) == self._workers:
                try:
                    action()
                except ExchangeFailed as error:
                    self.fail(str(error))
                    raise
                self._present.clear()
                self._met += 1
                self._changed.notify_all()
            elif not self._changed.wait_for(lambda: self._met > number or self._failure, self._within_s):
                late = sorted(set(range(self._workers)) - self._present)
                self.fail(f"{' and '.join(f'rank {rank}' for rank in late)} did not push in time")
            if self._met == number:
                self._check()

    def fail(self, reason: str) -> None:
        """Whoever waits, and whoever comes, hears the reason; of several the first."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _check(self) -> None:
        if self._failure:
            raise ExchangeFailed(self._failure)
