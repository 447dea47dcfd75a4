"""Aligns the monotonic clocks of other hosts with the clock of the window, so that all evidence is on one axis.

A span file names its clock domain; a log does not. A log belongs to the domain whose anchors have the most similar
difference between wall clock and monotonic clock.

If a domain exchanged messages with the window's domain (`dlobd.tracing.clock_sync`), they give an interval for the
offset. A time is then moved by the middle of this interval, and becomes a `Timestamp` with half of the interval as its
error. Without messages it is moved by the difference of the wall clocks, and its error is unknown.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from dlobd.bundle import files, reading
from dlobd.evidence import jvm, log4j
from dlobd.evidence.jvm import JvmLife
from dlobd.evidence.log4j import LogLine
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.timestamp import Move, MoveByMessages
from dlobd.schema import ClockAnchor
from dlobd.tracing.clock_offset import Exchange, Offset

OTHER_CLOCK_NS = 1_000_000_000
"""Threshold for different clocks: domains with a smaller difference of wall minus monotonic time share a clock."""


Logs = Mapping[Path, Path]
"""Log with wall and monotonic times -> the same JVM's own log, which has no wall times; it need not exist."""

NO_LOGS: Logs = MappingProxyType({})


def logs_of(bundle: Path) -> Logs:
    """Return all logs of a bundle."""
    jvm_logs = {bundle / name: bundle / files.DRIVER_JVM_LOG for name in (files.DRIVER_LOG, files.DRIVER_STDERR)}
    paths = (path for path in sorted((bundle / "logs").rglob("*")) if reading.is_file(path))
    return {path: jvm_logs.get(path, path.with_name("jvm.log")) for path in paths}


@dataclass(frozen=True, slots=True)
class MovedClock:
    """A clock domain that is aligned by messages. `error_ns` is the largest error of its times in the evidence."""

    domain: str
    pairs: int
    offset: Offset
    error_ns: int

    @property
    def host(self) -> str:
        return self.domain.partition("/")[0]


class Alignment:
    """Conversion of times to the clock of the window. `reference`: the window's anchors; if empty, no time changes."""

    def __init__(
        self, reference: Sequence[ClockAnchor], processes: Sequence[RecordedProcess] = (), logs: Logs = NO_LOGS
    ) -> None:
        self._domain = reference[0].domain if reference else None
        self._offset_ns = _ahead_ns(reference[0]) if reference else None
        # wall minus monotonic time -> its domain, if possible the window's
        self._domains: dict[int, tuple[bool, str]] = {}
        exchanges: dict[str, list[Exchange]] = defaultdict(list)
        for anchor in (*reference, *(anchor for process in processes for anchor in process.anchors)):
            domain, ahead_ns = (anchor.domain != self._domain, anchor.domain), _ahead_ns(anchor)
            self._domains[ahead_ns] = min(domain, self._domains.get(ahead_ns, domain))
        self._readings = sorted(self._domains)
        for process in processes:
            exchanges[process.domain] += [pair for domain, pair in process.exchanges if domain == self._domain]
        self._offsets = {
            domain: Offset(pairs) for domain, pairs in exchanges.items() if pairs and domain != self._domain
        }
        self._log_offsets_ns = {path: log4j.offset_ns(path) for path in logs}
        self.clocks = {
            domain: MovedClock(domain, len(exchanges[domain]), offset, self._worst_ns(domain, processes, logs))
            for domain, offset in self._offsets.items()
        }
        self.moved = {process.process.host for process in processes if self._by_wall_clock(*_clock_of(process))}
        self.moved |= {
            str(path)
            for path, offset_ns in self._log_offsets_ns.items()
            if self._by_wall_clock(self._domain_of_log(offset_ns), offset_ns)
        }

    def process(self, process: RecordedProcess) -> RecordedProcess:
        """Return a process with all its times moved."""
        move = self._move(*_clock_of(process))
        return process if move is None else _moved_process(process, move)

    def log(self, path: Path, source: str) -> list[LogLine]:
        """Return the lines of a log, with their times moved."""
        move = self._move_of_log(path)
        lines = log4j.read(path, source)
        return [replace(line, at_ns=move(line.at_ns)) for line in lines] if move else lines

    def jvm(self, life: JvmLife | None, log: Path) -> JvmLife | None:
        """Move the times of a JVM's own log, which has no wall time; `log` is another log of the same JVM."""
        move = self._move_of_log(log)
        return life if life is None or move is None else _moved_life(life, move)

    def log4j_configured(self, stderr: Path, log: Path) -> tuple[int, int] | None:
        """Return `log4j.configured` of a JVM, with its times moved."""
        move, bounds = self._move_of_log(log), log4j.configured(stderr, log)
        return (move(bounds[0]), move(bounds[1])) if move and bounds else bounds

    def _move_of_log(self, path: Path) -> Move | None:
        offset_ns = self._log_offsets_ns[path] if path in self._log_offsets_ns else log4j.offset_ns(path)
        return self._move(self._domain_of_log(offset_ns), offset_ns)

    def _domain_of_log(self, offset_ns: int | None) -> str | None:
        """Return the domain in which wall and monotonic time differ by `offset_ns`; by default the window's."""
        if offset_ns is None:
            return None
        above = bisect_left(self._readings, offset_ns)
        near = [(abs(offset_ns - ns), *self._domains[ns]) for ns in self._readings[max(0, above - 1) : above + 1]]
        return min(near)[2] if near and min(near)[0] <= OTHER_CLOCK_NS else None

    def _move(self, domain: str | None, offset_ns: int | None) -> Move | None:
        """Return a function that moves the times of a clock; None if they need no move."""
        if domain is not None and domain in self._offsets:
            return MoveByMessages(self._offsets[domain])
        by_ns = self._by_wall_clock(domain, offset_ns)
        return Move(by_ns) if by_ns else None

    def _by_wall_clock(self, domain: str | None, offset_ns: int | None) -> int:
        """Return the shift that aligns a clock's times by its wall clock; 0 if none is needed."""
        if self._offset_ns is None or offset_ns is None or domain == self._domain or domain in self._offsets:
            return 0
        by_ns = offset_ns - self._offset_ns
        return by_ns if abs(by_ns) > OTHER_CLOCK_NS else 0

    def _worst_ns(self, domain: str, processes: Iterable[RecordedProcess], logs: Logs) -> int:
        move = MoveByMessages(self._offsets[domain])
        for process in processes:
            if process.domain == domain:
                _moved_process(process, move)
        for path, jvm_log in logs.items():
            if self._domain_of_log(self._log_offsets_ns[path]) == domain:
                for at_ns in (*(at_ns for at_ns, _ in log4j.stamps(path)), *(log4j.configured(path) or ())):
                    move(at_ns)
                if life := jvm.read(jvm_log):
                    _moved_life(life, move)
        return move.worst_ns


def _moved_process(process: RecordedProcess, move: Move) -> RecordedProcess:
    begun_ns, spans = process.process.start_ns, process.spans
    (start_ns, end_ns), errors_ns = zip(move.columns(spans.start_ns), move.columns(spans.end_ns), strict=True)
    return replace(
        process,
        process=replace(process.process, start_ns=None if begun_ns is None else move(begun_ns)),
        opened_ns=move(process.opened_ns),
        last_ns=move(process.last_ns),
        spans=replace(spans, start_ns=start_ns, end_ns=end_ns, errors_ns=errors_ns),
        instants=[replace(instant, at_ns=move(instant.at_ns)) for instant in process.instants],
        uses=[replace(use, at_ns=move(use.at_ns)) for use in process.uses],
        anchors=[replace(anchor, monotonic_ns=move(anchor.monotonic_ns)) for anchor in process.anchors],
    )


def _moved_life(life: JvmLife, move: Move) -> JvmLife:
    return replace(
        life,
        start_ns=move(life.start_ns),
        exit_ns=None if life.exit_ns is None else move(life.exit_ns),
        created_ns=None if life.created_ns is None else move(life.created_ns),
        pauses=tuple((move(begin), move(end)) for begin, end in life.pauses),
    )


def _clock_of(process: RecordedProcess) -> tuple[str, int | None]:
    return process.domain, _ahead_ns(process.anchors[0]) if process.anchors else None


def _ahead_ns(anchor: ClockAnchor) -> int:
    return anchor.wall_ns - anchor.monotonic_ns
