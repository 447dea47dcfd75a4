"""Evidence of several hosts on one axis: monotonic clocks of other hosts are brought to that of the window.

A clock is told by the difference of its wall and monotonic time, which every span file and every log line of ours
holds. Where that differs by more than `OTHER_CLOCK_NS` it is another host's (or another boot's), and its times are
moved by the difference. That trusts the hosts' wall clocks: how far these differ is not measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlobd.importers import log4j
from dlobd.importers.jvm import JvmLife
from dlobd.importers.log4j import LogLine
from dlobd.importers.recorder import RecordedProcess
from dlobd.schema import ClockAnchor

OTHER_CLOCK_NS = 1_000_000_000
"""Two hosts were hardly booted within the same second, and no wall clock is set by so much during a run."""


class Alignment:
    """Moves times to the clock of `reference`; None leaves everything as it is."""

    # a span file names its clock domain; of a log only the two times are known

    def __init__(self, reference: ClockAnchor | None) -> None:
        self._offset_ns = reference.wall_ns - reference.monotonic_ns if reference else None
        self._domain = reference.domain if reference else None
        self.moved: set[str] = set()
        """Hosts, or logs, whose times were moved."""

    def shift_ns(self, offset_ns: int | None, who: str) -> int:
        """What to add to the times of a clock whose wall time is `offset_ns` ahead of its monotonic time."""
        if offset_ns is None or self._offset_ns is None or abs(offset_ns - self._offset_ns) <= OTHER_CLOCK_NS:
            return 0
        self.moved.add(who)
        return offset_ns - self._offset_ns

    def process(self, process: RecordedProcess) -> RecordedProcess:
        """A process with all its times moved."""
        if process.domain == self._domain:
            return process
        anchor = process.anchors[0] if process.anchors else None
        offset_ns = anchor.wall_ns - anchor.monotonic_ns if anchor else None
        by_ns = self.shift_ns(offset_ns, process.process.host)
        if not by_ns:
            return process
        begun_ns = process.process.start_ns
        process.process = replace(process.process, start_ns=None if begun_ns is None else begun_ns + by_ns)
        process.opened_ns += by_ns
        process.last_ns += by_ns
        for span in process.spans:
            span.start_ns += by_ns
            span.end_ns += by_ns
        process.instants = [replace(instant, at_ns=instant.at_ns + by_ns) for instant in process.instants]
        process.anchors = [replace(each, monotonic_ns=each.monotonic_ns + by_ns) for each in process.anchors]
        return process

    def log(self, path: Path, source: str) -> list[LogLine]:
        """The lines of a log, with their times moved."""
        by_ns = self.shift_ns(log4j.offset_ns(path), source)
        lines = log4j.read(path, source)
        return [replace(line, at_ns=line.at_ns + by_ns) for line in lines] if by_ns else lines

    def jvm(self, life: JvmLife | None, log: Path, source: str) -> JvmLife | None:
        """A JVM's life, whose own log has no wall clock; `log` is one that the same JVM wrote."""
        by_ns = self.shift_ns(log4j.offset_ns(log), source)
        if life is None or not by_ns:
            return life
        return replace(
            life, start_ns=life.start_ns + by_ns, exit_ns=None if life.exit_ns is None else life.exit_ns + by_ns
        )
