"""A clock that tests set."""

from __future__ import annotations


class FakeClock:
    """A clock for tests: each call returns the time and then advances it by `step_ns`."""

    def __init__(self, now_ns: int = 0, step_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.step_ns = step_ns

    def __call__(self) -> int:
        now = self.now_ns
        self.now_ns += self.step_ns
        return now
