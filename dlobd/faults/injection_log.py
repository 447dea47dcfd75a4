"""Injection log: the ground truth of every fault, as the injector measured it.

Attribution never reads it. Standard library only, because processes of the job write to it as well.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "injections.jsonl"


@dataclass(frozen=True, slots=True)
class Injection:
    """Fault during [start_ns, end_ns) on CLOCK_MONOTONIC: its measured interval, not the requested interval. `point` is
    an injection point of the self-test, or the name of another fault."""

    point: str
    asked_ns: int
    start_ns: int
    end_ns: int

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


def claim(directory: Path, point: str, index: int) -> bool:
    """Claim a delay: return True in exactly one process, so that each delay is injected once."""
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
    """Wait in the calling thread, and log the delay.

    `since_ns`: the start of the delay, if the job was held up earlier; by default the current time."""
    start_ns = time.monotonic_ns() if since_ns is None else since_ns
    wait(seconds)
    write(directory, Injection(point, round(seconds * 1e9), start_ns, time.monotonic_ns()))


def write(directory: Path, injection: Injection) -> None:
    """Append a record as one write, so that concurrent writers do not mix their lines."""
    with open(directory / FILE, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(json.dumps(asdict(injection)).encode() + b"\n")


def read(directory: Path) -> list[Injection]:
    """Return all records, sorted by start."""
    try:
        lines = (directory / FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted((Injection(**json.loads(line)) for line in lines), key=lambda injection: injection.start_ns)
