"""Reads logs of Hadoop's daemons and of Spark's JVMs with dlobd's pattern `%nano %d %p %c{2}: %m%n`.

Lines of Spark's JVMs also have their thread, ` [%t]`, before the colon. `%nano` is System.nanoTime at the log call, on
Linux the same clock as Python's monotonic_ns, so that a line needs no conversion of wall time. Its error is the time
between the event and the log call, a few microseconds.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from sys import intern

from dlobd.bundle import reading

RESOLUTION_NS = 1_000
"""The assumed uncertainty of a `%nano` timestamp: the log call itself."""

_LINE = re.compile(r"^(\d{6,19}) (\d{4}-\d\d-\d\dT[\d:.]+) ([A-Z]+) ([^\s:]+)(?: \[(.*?)\])?: (.*)$")
_STATUS = re.compile(r"^(\d{4}-\d\d-\d\dT[\d:]+\.\d+)Z \S+ INFO (Using provider:|Configuration \S+ .*started\.)")
"""Pattern of the lines of log4j's own status log, which have only wall-clock times."""
STATUS_RESOLUTION_NS = 1_000_000
"""Resolution of status lines: their conversion to the monotonic clock uses other lines' wall times in milliseconds."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log event; continuation lines (stack traces) are dropped. `thread` is "" if the pattern has none."""

    at_ns: int
    level: str
    logger: str
    message: str
    source: str
    thread: str = ""


def parse(lines: Iterable[str], source: str) -> Iterator[LogLine]:
    """Yield the lines that match dlobd's pattern, in the order of the file."""
    for line in lines:
        if match := _LINE.match(line):
            level, logger, thread = map(intern, (match[3], match[4], match[5] or ""))
            yield LogLine(int(match[1]), level, logger, match[6].rstrip("\n"), source, thread)


def offset_ns(path: Path) -> int | None:
    """Return wall clock minus monotonic clock in the first line of a file, to a millisecond."""
    return next((wall_ns - at_ns for at_ns, wall_ns in stamps(path)), None)


def stamps(path: Path) -> Iterator[tuple[int, int]]:
    """Yield both timestamps of each line in nanoseconds: monotonic clock, and wall clock to a millisecond."""
    for match in filter(None, map(_LINE.match, reading.lines(path))):
        wall_ns = _wall_ns(match[2])
        if wall_ns is not None:
            yield int(match[1]), wall_ns


def configured(stderr: Path, log: Path | None = None) -> tuple[int, int] | None:
    """Return start and end of log4j's configuration, to a millisecond; None if the JVM's stderr lacks one of them.

    log4j reports them by wall clock. The first line of `log`, by default stderr, gives the difference of both clocks.
    """
    ahead_ns, begun, ended = offset_ns(log or stderr), None, None
    if ahead_ns is None:
        return None
    for line in reading.lines(stderr):
        if _LINE.match(line):
            break
        if (match := _STATUS.match(line)) and (wall_ns := _wall_ns(match[1][:26])) is not None:
            if match[2].startswith("Using"):
                begun = begun or wall_ns
            else:
                ended = wall_ns
    return (begun - ahead_ns, ended - ahead_ns) if begun and ended and begun < ended else None


def _wall_ns(stamp: str) -> int | None:
    """Return nanoseconds since the epoch, to a microsecond; None for an invalid time."""
    try:
        wall = datetime.fromisoformat(stamp).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(wall.timestamp() * 1_000_000) * 1_000


def read(path: Path, source: str | None = None) -> list[LogLine]:
    """Return all parsed lines of a file; an empty list without the file."""
    return list(parse(reading.lines(path), source or path.name))
