"""Splits the wall time by the state of its threads: on a core, waiting for a core, or blocked. Pure.

The kernel counts each thread's time on a core and in the run queue; at all other times the thread is blocked. The
attributed wall time is one critical path through the lanes, and one thread executes a lane at each instant. So these
three states and the unknown rest partition the wall time. If a counter grows by G between two readings at an interval
of L, then o nanoseconds of a layer between them contain G * o / L, at least G - (L - o), and at most G and o. Time of a
process's other threads is not part of the wall time.

Delay by other processes: the run's waiting time, times the fraction of the machine's CPU time that they used meanwhile.

The sampler reads all processes of the run on dlobd's machine; each Python process reads its own counters, on any host.
"""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from dlobd.attribution.trace import SEGMENT_LAYERS, Segment, Segments, Span
from dlobd.columns import NONE, Covered, Ints, begins_of_runs, scaled
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.resources import Counter, ProcessSample, SampledHost, SampledProcess
from dlobd.layers import YARN
from dlobd.measures.resource_use import OTHER, Window, with_roles
from dlobd.record.resources import CoreWaits, LaneTime, LayerWaits, Pressure, ThreadUse
from dlobd.schema import Process
from dlobd.tracing.clock import tick_ns

HELD_UP = 0.02
"""Threshold of a busy machine: other processes' delay as a fraction of the wall time. Quiet runs vary by more."""

NO_SPAN = "no span was open"
BY_YARN = "YARN's daemons, whose inner work has no lane"
NOT_SAMPLED = "a process without counters of its threads"
BETWEEN = "before the first or after the last reading of a process"
BESIDE = "a thread other than the main thread of its process"
OF_DLOBD = "dlobd's own process"

Reading = tuple[int, int, int]
"""A time, and the nanoseconds on a core and waiting for a core until that time."""


class Carrier:
    """The threads that execute a lane in turn, with readings of their summed counters."""

    def __init__(self, processes: Sequence[Sequence[Reading]]) -> None:
        readings_of = [np.array(readings, np.int64).reshape(-1, 3) for readings in processes]
        self.times_ns = np.unique(np.concatenate([np.zeros(0, np.int64), *(of[:, 0] for of in readings_of)]))
        length_ns, grown = np.diff(self.times_ns), []
        for column in (1, 2):
            counters = (Counter(zip(of[:, 0].tolist(), of[:, column].tolist(), strict=True)) for of in readings_of)
            grown.append(np.diff(sum((one.values(self.times_ns) for one in counters), np.zeros_like(self.times_ns))))
        # time on a core and waiting for a core between two readings, capped at the duration
        self.on_core_ns = np.minimum(grown[0], length_ns)
        self.waiting_ns = np.minimum(grown[1], length_ns - self.on_core_ns)

    def overlaps_ns(self, start_ns: int, end_ns: int) -> Ints:
        """Return the overlap of [start, end) with each interval between two readings."""
        begin_ns, until_ns = self.times_ns[:-1], self.times_ns[1:]
        overlap_ns: Ints = np.maximum(0, np.minimum(end_ns, until_ns) - np.maximum(start_ns, begin_ns))
        return overlap_ns

    def waited_ns(self, start_ns: int, end_ns: int) -> int:
        """Return the wait for a core in [start, end), interpolated between readings."""
        return int(scaled(self.waiting_ns, self.overlaps_ns(start_ns, end_ns), np.diff(self.times_ns)).sum())


class Carriers:
    """The carriers of all lanes, from samples of dlobd's machine and from recorded counters of Python processes."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._sampled: list[tuple[SampledProcess, str, int]] = []
        if evidence.resources:
            found = with_roles(evidence, evidence.resources)
            self._sampled = [row for row in found if any(s.later_ns is not None for s in row[0].samples)]
        self._recorded = [process for process in evidence.processes if process.uses]
        self._by_role: dict[tuple[str, int], list[Sequence[Reading]]] = defaultdict(list)
        self._carriers: dict[tuple[str, int] | Process, Carrier] = {}
        self._matched: dict[int, SampledProcess] = {}
        for recorded in self._recorded:
            if twin := self._twin(recorded):
                self._matched[id(recorded)] = twin
            who = recorded.process
            readings = _readings(twin, recorded)
            self._carriers[who] = Carrier([readings])
            if who.role == "driver":
                self._by_role["driver", 0].append(readings)
        twins = set(map(id, self._matched.values()))
        self._alone = [row for row in self._sampled if id(row[0]) not in twins]
        for process, role, index in self._alone:
            self._by_role[role, index].append(_readings(process, None))
        if evidence.topology.driver_in_container:  # the ApplicationMaster's JVM is the driver's
            self._by_role["driver", 0] += self._by_role["application-master", 0]
        for key, several in self._by_role.items():
            self._carriers[key] = Carrier(several)

    @property
    def any(self) -> bool:
        """True if any process has counters."""
        return bool(self._sampled or self._recorded)

    def groups(self, segments: Segments) -> Iterator[tuple[Carrier | str, Ints]]:
        """Yield the threads that executed segments, or the reason why they are unknown, with the rows of the
        segments."""
        spans, alone = segments.spans, segments.layer == SEGMENT_LAYERS.index(YARN)
        origin, kind = (np.append(column, NONE)[segments.row] for column in (spans.origin, spans.kind))
        # YARN's own time depends on the life of a process
        keys = origin, kind, segments.layer, np.where(alone, np.arange(len(segments)), NONE)
        order = np.lexsort(keys)
        first = begins_of_runs(*(key[order] for key in keys))
        rows = np.split(order, np.flatnonzero(first)[1:])
        found: dict[Carrier | str, list[Ints]] = defaultdict(list)
        for some, segment in zip(rows, segments.where(order[first]), strict=True):
            found[self.carrier(segment)].append(some)
        for carrier, parts in found.items():
            yield carrier, np.sort(np.concatenate(parts))

    def carrier(self, segment: Segment) -> Carrier | str:
        """Return the threads that executed a piece of the wall time, or the reason why they are unknown."""
        span = segment.span
        if span is None:
            return NO_SPAN
        if span.process.role == "client":
            return OF_DLOBD
        _, beside, thread = span.lane.partition("/")
        in_slot = thread.startswith("slot-") and span.process.role != "executor"  # a JVM has the threads of all slots
        if beside and not thread.startswith("python-") and not in_slot:
            return BESIDE
        carrier = self._carriers.get(self._key(span))
        # a container has no process before its start and after its end
        if segment.layer == "yarn" and (
            carrier is None or not carrier.overlaps_ns(segment.start_ns, segment.end_ns).any()
        ):
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
        rows = []
        for recorded in self._recorded:
            twin = self._matched.get(id(recorded))
            source = "own marks, samples" if twin else "own marks"
            rows.append(_row(recorded.process, _merged(twin, recorded), window, source))
        host = self._evidence.resources.host if self._evidence.resources else ""
        for process, role, index in self._alone:
            if role != OTHER:
                who = Process(host, role, index, process.pid, process.start_ns)
                rows.append(_row(who, _merged(process, None), window, "samples"))
        return tuple(sorted(rows, key=lambda row: (row.role, row.index, row.pid)))

    def pressure(self, window: Window) -> tuple[Pressure, ...]:
        """Return the pressure stall times of each host."""
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
        found = self._evidence.resources
        if found is None or recorded.domain != found.domain:
            return None
        start_ns = recorded.process.start_ns
        for process in (process for process, _, _ in self._sampled if process.pid == recorded.process.pid):
            if start_ns is None or process.start_ns is None or abs(process.start_ns - start_ns) < tick_ns():
                return process
        return None


def _readings(sampled: SampledProcess | None, recorded: RecordedProcess | None) -> list[Reading]:
    pairs = _merged(sampled, recorded)
    on_core, waiting = _rising(pairs["lane_on_core_ns"]), _rising(pairs["lane_waiting_ns"])
    return [(at_ns, value, other) for (at_ns, value), (_, other) in zip(on_core, waiting, strict=True)]


_COLUMNS = (
    *("lane_on_core_ns", "lane_waiting_ns", "threads_on_core_ns", "threads_waiting_ns"),
    *("threads_cpu_ns", "read_bytes", "major_faults", "block_io_ns"),
)
"""Counters of a `ProcessSample`, in the order of the counters of a `Use`."""


def _merged(sampled: SampledProcess | None, recorded: RecordedProcess | None) -> dict[str, list[tuple[int, int]]]:
    """Return the counters of one process over time, from the sampler and from the process itself. Each counter was 0 at
    the process's start."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in _COLUMNS}

    def add(at_ns: int, values: Sequence[int | None]) -> None:
        for name, value in zip(_COLUMNS, values, strict=True):
            if value is not None:
                found[name].append((at_ns, value))

    for sample in sampled.samples if sampled else ():
        if sample.later_ns is not None:
            add(sample.at_ns + sample.later_ns, [getattr(sample, name) for name in _COLUMNS])
    for use in recorded.uses if recorded else ():
        main, threads = use.main or (None, None), use.threads or (None, None)
        add(use.at_ns, [*main, *threads, use.cpu_ns, use.read_bytes, use.major_faults, use.block_io_ns])
    start_ns = recorded.process.start_ns if recorded else sampled.start_ns if sampled else None
    if recorded and recorded.forked:
        start_ns = recorded.opened_ns
    for readings in found.values():
        readings.sort()
        if readings and start_ns is not None and start_ns < readings[0][0]:
            readings.insert(0, (start_ns, 0))
    return found


def _rising(readings: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return readings as their running maximum: readings of two readers may be slightly out of order."""
    ordered = list(readings)
    return [(at_ns, high) for (at_ns, _), high in zip(ordered, accumulate((v for _, v in ordered), max), strict=True)]


def _row(who: Process, readings: Mapping[str, list[tuple[int, int]]], window: Window, source: str) -> ThreadUse:
    grown = {name: Counter(_rising(each)).between(*window) if each else None for name, each in readings.items()}
    all_ns, seen_ns = grown["threads_cpu_ns"], grown["threads_on_core_ns"]
    return ThreadUse(
        host=who.host,
        role=who.role,
        index=who.index,
        pid=who.pid,
        source=source,
        main_on_core_ns=grown["lane_on_core_ns"],
        main_waiting_ns=grown["lane_waiting_ns"],
        on_core_ns=all_ns,
        waiting_ns=grown["threads_waiting_ns"],
        ended_on_core_ns=None if all_ns is None or seen_ns is None else max(0, all_ns - seen_ns),
        read_bytes=grown["read_bytes"],
        major_faults=grown["major_faults"],
        block_io_ns=grown["block_io_ns"],
    )


Pieces = list[tuple[Carrier | str, Segments]]
"""Threads, or the reason why they are unknown, with the segments that they executed."""


def core_waits(evidence: Evidence, segments: Segments, window: Window) -> CoreWaits | None:
    """Return the member `core_waits` of run.json, from the segments of the attribution; None without counters."""
    known = Carriers(evidence)
    if not known.any:
        return None
    pieces: Pieces = [(carrier, segments.where(rows)) for carrier, rows in known.groups(segments)]
    unknown: Tally[str] = Tally()
    whole = LaneTime(**_split(pieces, unknown))
    foreign_ns, held_up_ns = _by_others(evidence, pieces, window)
    wall_ns = window[1] - window[0]
    return CoreWaits(
        whole=whole,
        layers=tuple(
            LayerWaits(
                layer=SEGMENT_LAYERS[layer], **_split([(one, some.where(some.layer == layer)) for one, some in pieces])
            )
            for layer in np.unique(segments.layer).tolist()
        ),
        unknown=tuple((why, ns) for why, ns in sorted(unknown.items(), key=lambda item: (-item[1], item[0])) if ns),
        processes=known.rows(window),
        pressure=known.pressure(window),
        foreign_cpu_ns=foreign_ns,
        held_up_ns=held_up_ns,
        busy=None if held_up_ns is None else held_up_ns > HELD_UP * wall_ns,
    )


def warnings(waits: CoreWaits | None, wall_ns: int) -> list[str]:
    """Return a warning if other processes delayed the run."""
    if waits is None or not waits.busy:
        return []
    held_up_s, foreign_s = (waits.held_up_ns or 0) / 1e9, (waits.foreign_cpu_ns or 0) / 1e9
    others = f"cores; other processes used {foreign_s:.1f} s of CPU time"
    return [f"the machine was busy: the run waited {held_up_s:.1f} of {wall_ns / 1e9:.1f} s for {others}"]


def _split(pieces: Pieces, unknown: Tally[str] | None = None) -> dict[str, int]:
    names = ("on_core_ns", "on_core_lo_ns", "on_core_hi_ns", "waiting_ns", "waiting_lo_ns", "waiting_hi_ns")
    states = dict.fromkeys(names, 0)
    total_ns = known_ns = 0
    for carrier, segments in pieces:
        ns = int((segments.end_ns - segments.start_ns).sum())
        total_ns += ns
        why = carrier if isinstance(carrier, str) else BETWEEN
        if not isinstance(carrier, str):
            times_ns, grown = carrier.times_ns, (carrier.on_core_ns, carrier.waiting_ns)
            overlap_ns = np.diff(Covered(segments.start_ns, segments.end_ns)(times_ns))
            length_ns = np.diff(times_ns)
            for name, grown_ns in zip(("on_core", "waiting"), grown, strict=True):
                some, most_ns = overlap_ns > 0, np.minimum(grown_ns, overlap_ns)
                states[f"{name}_ns"] += int(scaled(grown_ns[some], overlap_ns[some], length_ns[some]).sum())
                least_ns = np.maximum(0, grown_ns - (length_ns - overlap_ns))
                states[f"{name}_lo_ns"] += int(least_ns[some].sum())
                states[f"{name}_hi_ns"] += int(most_ns[some].sum())
            known_ns += int(overlap_ns.sum())
            ns -= int(overlap_ns.sum())
        if unknown is not None:
            unknown[why] += ns
    blocked_ns = known_ns - states["on_core_ns"] - states["waiting_ns"]
    return {"ns": total_ns, **states, "blocked_ns": blocked_ns, "unknown_ns": total_ns - known_ns}


def _by_others(evidence: Evidence, pieces: Pieces, window: Window) -> tuple[int | None, int | None]:
    """Return the CPU time of foreign processes and the run's wait for the cores they used; None if unknown."""
    host = evidence.resources
    topology = evidence.topology
    if host is None or topology.external or topology.by_hand or len(host.samples) < 2:
        return None, None
    known = [(span_ns, used_ns) for span_ns, used_ns in _foreign(host) if used_ns[1]]
    known = [one for one in known if max(one[0][0], window[0]) < min(one[0][1], window[1])]
    before_ns, after_ns = (np.array([span_ns[side] for span_ns, _ in known], np.int64) for side in (0, 1))
    own_ns, busy_ns = (np.array([used_ns[side] for _, used_ns in known], np.int64) for side in (0, 1))
    start_ns, end_ns = np.maximum(before_ns, window[0]), np.minimum(after_ns, window[1])
    others_ns = np.maximum(0, busy_ns - own_ns)
    waited_ns = np.zeros_like(start_ns)
    for carrier, segments in pieces:
        if isinstance(carrier, Carrier):
            waited_ns += _waited_ns(carrier, segments, start_ns, end_ns)
    foreign_ns = scaled(others_ns, end_ns - start_ns, after_ns - before_ns)
    return int(foreign_ns.sum()), int(scaled(waited_ns, others_ns, busy_ns).sum())


def _waited_ns(carrier: Carrier, segments: Segments, start_ns: Ints, end_ns: Ints) -> Ints:
    """Return the waits for a core in each of the disjoint intervals, interpolated between readings."""
    times_ns, waiting_ns = carrier.times_ns, carrier.waiting_ns
    bounds = (segments.start_ns, segments.end_ns, start_ns, end_ns, times_ns)
    cuts_ns = np.unique(np.concatenate(bounds))
    begin_ns, length_ns = cuts_ns[:-1], np.diff(cuts_ns)
    piece = np.searchsorted(segments.start_ns, begin_ns, "right") - 1
    interval = np.searchsorted(start_ns, begin_ns, "right") - 1
    stretch = np.searchsorted(times_ns, begin_ns, "right") - 1
    some = (piece >= 0) & (interval >= 0) & (stretch >= 0) & (stretch < len(waiting_ns))
    some[some] = (begin_ns[some] < segments.end_ns[piece[some]]) & (begin_ns[some] < end_ns[interval[some]])
    of_stretch = stretch[some]
    found = np.zeros_like(start_ns)
    whole_ns = np.diff(times_ns)[of_stretch]
    np.add.at(found, interval[some], scaled(waiting_ns[of_stretch], length_ns[some], whole_ns))
    return found


def _foreign(host: SampledHost) -> Iterator[tuple[Window, tuple[int, int]]]:
    at: dict[int, dict[int, ProcessSample]] = defaultdict(dict)
    for process in host.processes:
        for sample in process.samples:
            at[sample.at_ns][process.pid] = sample
    parents = {process.pid: process.parent for process in host.processes}
    for before, after in pairwise(host.samples):
        earlier, later = at[before.at_ns], at[after.at_ns]
        own_ns = 0
        reaped: Tally[int] = Tally()
        for pid, sample in later.items():
            previous = earlier.get(pid)
            own_ns += sample.cpu_ns - (previous.cpu_ns if previous else 0)
            reaped[pid] = sample.reaped_ns - (previous.reaped_ns if previous else 0)
        own_ns += sum(reaped.values())
        for pid in earlier.keys() - later.keys():  # the kernel adds its time to a parent that waited for it
            ended_ns = earlier[pid].cpu_ns + earlier[pid].reaped_ns
            if reaped[parents[pid]] >= ended_ns:
                reaped[parents[pid]] -= ended_ns
                own_ns -= ended_ns
        yield (before.at_ns, after.at_ns), (max(0, own_ns), after.cpu_busy_ns - before.cpu_busy_ns)
