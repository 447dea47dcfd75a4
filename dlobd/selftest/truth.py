"""What was injected, as the injector measured it. Attribution never sees these records.

Stdlib only: the processes of a job write them too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "truth.jsonl"


@dataclass(frozen=True, slots=True)
class Injection:
    """One delay: [start_ns, end_ns) on CLOCK_MONOTONIC, which is what it took, not what was asked for."""

    point: str
    asked_ns: int
    start_ns: int
    end_ns: int

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
    since_ns: int | None = None,
) -> None:
    """Waits here, and writes down for how long: since when the job has been held up, if that is known, else from now
    on."""
    start_ns = time.monotonic_ns() if since_ns is None else since_ns
    wait(seconds)
    write(directory, Injection(point, round(seconds * 1e9), start_ns, time.monotonic_ns()))


def write(directory: Path, injected: Injection) -> None:
    """Adds a record; whole lines, also with concurrent writers."""
    line = json.dumps(asdict(injected)).encode() + b"\n"
    fd = os.open(directory / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def read(directory: Path) -> list[Injection]:
    """All records, in the order of their start."""
    try:
        lines = (directory / FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted((Injection(**json.loads(line)) for line in lines), key=lambda each: each.start_ns)
