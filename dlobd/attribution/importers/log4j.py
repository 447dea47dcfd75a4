"""Log lines of Hadoop's daemons and of Spark's JVMs, written with dlobd's pattern `%nano %d %p %c{2}: %m%n`.

`%nano` is System.nanoTime at the log call: on Linux the clock that Python's monotonic_ns reads, so that a line needs no
wall-clock mapping. Its error is the few microseconds between what happened and the call that logs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

RESOLUTION_NS = 1_000
"""What a `%nano` stamp is taken to be good for: the log call itself."""

_LINE = re.compile(r"^(\d{6,}) (\d{4}-\d\d-\d\dT[\d:.]+) ([A-Z]+) (\S+): (.*)$")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log event; continuation lines (stack traces) are dropped."""

    at_ns: int
    level: str
    logger: str
    message: str
    source: str


def parse(lines: Iterable[str], source: str) -> Iterator[LogLine]:
    """The lines that match dlobd's pattern, in the order of the file."""
    for line in lines:
        match = _LINE.match(line)
        if match:
            yield LogLine(int(match[1]), match[3], match[4], match[5].rstrip("\n"), source)


def offset_ns(path: Path) -> int | None:
    """How far the wall clock is ahead of the monotonic one, to a millisecond, by the first line of a file."""
    return next((wall_ns - at_ns for at_ns, wall_ns in stamps(path)), None)


def stamps(path: Path) -> Iterator[tuple[int, int]]:
    """The two stamps of each line of a file, by the monotonic clock and, to a millisecond, by the wall clock; both in
    nanoseconds. An absent file has none."""
    if not path.exists():
        return
    with path.open(errors="replace") as file:
        for match in filter(None, map(_LINE.match, file)):
            try:
                wall = datetime.fromisoformat(match[2]).replace(tzinfo=UTC)
            except ValueError:
                continue
            yield int(match[1]), round(wall.timestamp() * 1000) * 1_000_000


def read(path: Path, source: str | None = None) -> list[LogLine]:
    """All parsed lines of a file; an absent file has none."""
    if not path.exists():
        return []
    with path.open(errors="replace") as file:
        return list(parse(file, source or path.name))
