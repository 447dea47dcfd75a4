"""Waits of tests, each with a deadline that a busy machine meets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], within_s: float = 40) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found
