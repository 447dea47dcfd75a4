"""What was injected, as the injector measured it. Attribution never sees these records.

Stdlib only: the processes of a job write them too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "truth.jsonl"


@dataclass(frozen=True, slots=True)
class Injection:
    """One delay: [start_ns, end_ns) on CLOCK_MONOTONIC, which is what it took, not what was asked for.

    own_ns: for how long, beside it, the injector itself may have held the job up.
    """

    point: str
    asked_ns: int
    start_ns: int
    end_ns: int
    own_ns: int = 0

    @property
    def ns(self) -> int:
        """How long it was."""
        return self.end_ns - self.start_ns


def claim(directory: Path, point: str, index: int) -> bool:
    """Whether the caller is the one process that makes this delay: each is made once."""
    try:
        os.close(os.open(directory / f"{point.replace('/', '-')}.{index}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def inject(
    directory: Path,
    point: str,
    seconds: float,
    wait: Callable[[float], object] = time.sleep,
    held_ns: tuple[int, int] | None = None,
) -> None:
    """Waits here, and writes down for how long.

    Args:
        held_ns: since when the job may be held up already, and since when it is.
    """
    maybe_ns, since_ns = held_ns or (time.monotonic_ns(), 0)
    with _opened(directory) as fd:
        start_ns = since_ns or time.monotonic_ns()
        wait(seconds)
        end_ns = time.monotonic_ns()
        _append(fd, Injection(point, round(seconds * 1e9), start_ns, end_ns, start_ns - maybe_ns))


def write(directory: Path, injected: Injection) -> None:
    """Adds a record; whole lines, also with concurrent writers."""
    with _opened(directory) as fd:
        _append(fd, injected)


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _append(fd: int, injected: Injection) -> None:
    os.write(fd, json.dumps(asdict(injected)).encode() + b"\n")


def read(directory: Path) -> list[Injection]:
    """All records, in the order of their start."""
    try:
        lines = (directory / FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted((Injection(**json.loads(line)) for line in lines), key=lambda each: each.start_ns)
