"""A unit test starts no process, opens no connection and does not sleep; tests/local is for tests that do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest
import requests  # noqa: F401  urllib3 binds a socket when it is imported

FORBIDDEN = ("subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind", "socket.connect", "time.sleep")
ALLOWED_PROGRAMS = ("git", "sha256sum", "uname")
"""They take milliseconds: a run records the commit of this checkout, and sha256sum checks a bundle as users do."""

_events: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in FORBIDDEN:
        if event == "subprocess.Popen" and PurePath(str(arguments[0])).name in ALLOWED_PROGRAMS:
            return
        _events.append(f"{event} {arguments}")


sys.addaudithook(_note)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    _events.clear()
    yield
    assert _events == [], "such a test belongs to tests/local"
