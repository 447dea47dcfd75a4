"""The threads that carry a lane, and what their counters say over time: `core_waits` splits the wall by them. Pure.

Two read them: the sampler of dlobd's machine, for every process of the run there, and each Python process for itself,
on any host.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.resources import Counter, SampledProcess
from dlobd.measures.resource_use import OTHER, with_roles
from dlobd.record.resources import Pressure, ThreadUse
from dlobd.schema import Process, Segment, Span
from dlobd.tracing.clock import tick_ns

NO_SPAN = "no span was open"
BY_YARN = "YARN's daemons: what one does inside has no lane"
NOT_SAMPLED = "a process whose threads nobody read"
BETWEEN = "before a process was first read, or after it was last"
BESIDE = "a thread beside its process's main one"
OF_DLOBD = "dlobd's own process"

Window = tuple[int, int]
Reading = tuple[int, int, int]
"""When, and until then: on a core, waiting for one."""


class Carrier:
    """The threads that carry a lane by turns, as one: readings of their sums."""

    def __init__(self, processes: Sequence[Sequence[Reading]]) -> None:
        self.times = sorted({at_ns for readings in processes for at_ns, _, _ in readings})
        sums = [[0, 0] for _ in self.times]
        for readings in processes:
            for column in (0, 1):
                counter = Counter((reading[0], reading[1 + column]) for reading in readings)
                for total, at_ns in zip(sums, self.times, strict=True):
                    total[column] += counter.at(at_ns)
        self._grown = [(later[0] - total[0], later[1] - total[1]) for total, later in pairwise(sums)]

    def overlaps(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """The stretches between readings that lie in [start, end), with how much of each."""
        index = max(0, bisect_right(self.times, start_ns) - 1)
        while index + 1 < len(self.times) and self.times[index] < end_ns:
            overlap_ns = min(end_ns, self.times[index + 1]) - max(start_ns, self.times[index])
            if overlap_ns > 0:
                yield index, overlap_ns
            index += 1

    def stretch(self, index: int) -> tuple[int, int, int]:
        """Length of a stretch, and of it on a core, and waiting. Threads that overlapped are not more than it."""
        length_ns = self.times[index + 1] - self.times[index]
        on_core_ns = min(self._grown[index][0], length_ns)
        return length_ns, on_core_ns, min(self._grown[index][1], length_ns - on_core_ns)

    def waiting_ns(self, start_ns: int, end_ns: int) -> int:
        """How long it waited for a core in [start, end), in proportion."""
        return sum(
            waiting_ns * overlap_ns // length_ns
            for index, overlap_ns in self.overlaps(start_ns, end_ns)
            for length_ns, _, waiting_ns in [self.stretch(index)]
        )


class Carriers:
    """What is known of which process's threads: by samples of dlobd's machine, and by Python processes' own marks."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._sampled: list[tuple[SampledProcess, str, int]] = []
        if evidence.resources:
            found = with_roles(evidence, evidence.resources)
            self._sampled = [one for one in found if any(s.later_ns is not None for s in one[0].samples)]
        self._recorded = [process for process in evidence.processes if process.uses]
        self._by_role: dict[tuple[str, int], list[Sequence[Reading]]] = defaultdict(list)
        self._carriers: dict[tuple[str, int] | Process, Carrier] = {}
        matched: dict[int, SampledProcess] = {}
        for recorded in self._recorded:
            if twin := self._twin(recorded):
                matched[id(recorded)] = twin
            who = recorded.process
            readings = _readings(twin, recorded)
            self._carriers[who] = Carrier([readings])
            if who.role == "driver":
                self._by_role["driver", 0].append(readings)
        twins = set(map(id, matched.values()))
        for process, role, index in self._sampled:
            if id(process) not in twins:
                self._by_role[role, index].append(_readings(process, None))
        if evidence.topology.driver_in_container:  # its JVM is the driver's
            self._by_role["driver", 0] += self._by_role["application-master", 0]
        self._matched = matched
        for key, several in self._by_role.items():
            self._carriers[key] = Carrier(several)

    @property
    def any(self) -> bool:
        """Whether anything is known."""
        return bool(self._sampled or self._recorded)

    def carrier(self, segment: Segment) -> Carrier | str:
        """The threads that carried a piece of the wall, or why they are not known."""
        span = segment.span
        if span is None:
            return NO_SPAN
        if span.process.role == "client":
            return OF_DLOBD
        _, beside, thread = span.lane.partition("/")
        if beside and not thread.startswith("python-"):
            return BESIDE
        carrier = self._carriers.get(self._key(span))
        # a container has no process before it is started, nor after it has ended
        if segment.layer == "yarn" and (carrier is None or not any(carrier.overlaps(segment.start_ns, segment.end_ns))):
            return BY_YARN
        return carrier or NOT_SAMPLED

    def _key(self, span: Span) -> tuple[str, int] | Process:
        who = span.process
        if who.role == "driver":
            return "driver", 0
        if span.kind.role:  # the ApplicationMaster also works in an executor's lane, before the executor exists
            return span.kind.role, 0
        return who if who in self._carriers else (who.role, who.index)

    def rows(self, window: Window) -> tuple[ThreadUse, ...]:
        """Return the counters of each process with a known role."""
        rows = [
            _row(recorded.process, _merged(self._matched.get(id(recorded)), recorded), window,
                 "own marks, samples" if id(recorded) in self._matched else "own marks")
            for recorded in self._recorded
        ]  # fmt: skip
        twins = set(map(id, self._matched.values()))
        host = self._evidence.resources.host if self._evidence.resources else ""
        for process, role, index in self._sampled:
            if id(process) not in twins and role != OTHER:
                who = Process(host, role, index, process.pid, process.start_ns)
                rows.append(_row(who, _merged(process, None), window, "samples"))
        return tuple(sorted(rows, key=lambda row: (row.role, row.index, row.pid)))

    def pressure(self, window: Window) -> tuple[Pressure, ...]:
        """Return the stalls of each host's tasks."""
        stalls: dict[str, list[tuple[int, tuple[int, int]]]] = defaultdict(list)
        for recorded in self._recorded:
            stalls[recorded.process.host] += [(use.at_ns, use.pressure) for use in recorded.uses if use.pressure]
        if found := self._evidence.resources:
            stalls[found.host] += [(sample.at_ns, sample.pressure) for sample in found.samples if sample.pressure]
        return tuple(
            Pressure(
                host,
                max(0, min(window[1], max(readings)[0]) - max(window[0], min(readings)[0])),
                *(
                    Counter(_rising((at_ns, pair[column]) for at_ns, pair in sorted(readings))).between(*window)
                    for column in (0, 1)
                ),
            )
            for host, readings in sorted(stalls.items())
            if readings
        )

    def _twin(self, recorded: RecordedProcess) -> SampledProcess | None:
        """The same process, as samples saw it."""
        found = self._evidence.resources
        if found is None or recorded.domain != found.domain:
            return None
        start_ns = recorded.process.start_ns
        return next(
            (
                process
                for process, _, _ in self._sampled
                if process.pid == recorded.process.pid
                and (start_ns is None or process.start_ns is None or abs(process.start_ns - start_ns) < tick_ns())
            ),
            None,
        )


def _readings(sampled: SampledProcess | None, recorded: RecordedProcess | None) -> list[Reading]:
    """Of the threads that carry the lane."""
    pairs = _merged(sampled, recorded)
    on_core, waiting = _rising(pairs["lane_on_core"]), _rising(pairs["lane_waiting"])
    return [(at_ns, value, other) for (at_ns, value), (_, other) in zip(on_core, waiting, strict=True)]


_COLUMNS: Mapping[str, str] = {
    "lane_on_core": "lane_on_core_ns", "lane_waiting": "lane_waiting_ns", "threads_on_core": "threads_on_core_ns",
    "threads_waiting": "threads_waiting_ns", "cpu": "threads_cpu_ns", "read": "read_bytes", "major": "major_faults",
    "block_io": "block_io_ns",
}  # fmt: skip


def _merged(sampled: SampledProcess | None, recorded: RecordedProcess | None) -> dict[str, list[tuple[int, int]]]:
    """The counters of one process over time, from both who read them; each was 0 when it started."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in _COLUMNS}
    for sample in sampled.samples if sampled else ():
        if sample.later_ns is not None:
            _append(found, sample.at_ns + sample.later_ns, {name: getattr(sample, of) for name, of in _COLUMNS.items()})
    for use in recorded.uses if recorded else ():
        main, threads = use.main or (None, None), use.threads or (None, None)
        rest = (use.cpu_ns, use.read_bytes, use.major_faults, use.block_io_ns)
        _append(found, use.at_ns, dict(zip(_COLUMNS, (*main, *threads, *rest), strict=True)))
    start_ns = recorded.process.start_ns if recorded else sampled.start_ns if sampled else None
    if recorded and recorded.forked:
        start_ns = recorded.opened_ns
    for readings in found.values():
        readings.sort()
        if readings and start_ns is not None and start_ns < readings[0][0]:
            readings.insert(0, (start_ns, 0))
    return found


def _append(found: dict[str, list[tuple[int, int]]], at_ns: int, values: Mapping[str, int | None]) -> None:
    for name, value in values.items():
        if value is not None:
            found[name].append((at_ns, value))


def _rising(readings: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Two readers of one counter may have swapped places in between: it does not fall."""
    rising, highest = [], 0
    for at_ns, value in readings:
        highest = max(highest, value)
        rising.append((at_ns, highest))
    return rising


def _row(who: Process, readings: Mapping[str, list[tuple[int, int]]], window: Window, source: str) -> ThreadUse:
    grown = {name: Counter(_rising(each)).between(*window) if each else None for name, each in readings.items()}
    ended_ns = (
        None if grown["cpu"] is None or grown["threads_on_core"] is None else grown["cpu"] - grown["threads_on_core"]
    )
    return ThreadUse(
        host=who.host,
        role=who.role,
        index=who.index,
        pid=who.pid,
        source=source,
        main_on_core_ns=grown["lane_on_core"],
        main_waiting_ns=grown["lane_waiting"],
        on_core_ns=grown["cpu"],
        waiting_ns=grown["threads_waiting"],
        ended_on_core_ns=None if ended_ns is None else max(0, ended_ns),
        read_bytes=grown["read"],
        major_faults=grown["major"],
        block_io_ns=grown["block_io"],
    )
