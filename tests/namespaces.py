"""Hosts as network namespaces, as tests want them: without them a test is skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from dlobd.errors import SetupError
from dlobd.microbench.hosts import INTERFACE, Host
from dlobd.microbench.hosts import hosts as made

__all__ = ["INTERFACE", "Host", "hosts"]


@contextmanager
def hosts(count: int, rate: str = "") -> Iterator[list[Host]]:
    """See `dlobd.microbench.hosts`."""
    with ExitStack() as opened:
        try:
            found = opened.enter_context(made(count, rate))
        except SetupError as error:
            pytest.skip(str(error))
        yield found
