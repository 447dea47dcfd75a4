"""Splits the wall time by the state of its threads: on a core, waiting for a core, or blocked. Pure.

The kernel counts each thread's time on a core and in the run queue; at all other times the thread is blocked. The
attributed wall time is one critical path through the lanes, and one thread executes a lane at each instant. So these
three states and the unknown rest partition the wall time. If a counter grows by G between two readings at an interval
of L, then o nanoseconds of a layer between them contain G * o / L, at least G - (L - o), and at most G and o. Time of a
process's other threads is not part of the wall time.

Delay by other processes: the run's waiting time, times the fraction of the machine's CPU time that they used meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from dlobd.attribution.trace import Segment
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import ProcessSample, SampledHost
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.measures.lane_threads import BETWEEN, Carrier, Carriers, Window
from dlobd.record.resources import CoreWaits, LaneTime, LayerWaits

HELD_UP = 0.02
"""Threshold of a busy machine: other processes' delay as a fraction of the wall time. Quiet runs vary by more."""

Pieces = list[tuple[Segment, Carrier | str]]


def core_waits(evidence: Evidence, segments: Sequence[Segment], window: Window) -> CoreWaits | None:
    """Return the member `core_waits` of run.json, from the segments of the attribution; None without counters."""
    known = Carriers(evidence)
    if not known.any:
        return None
    pieces: Pieces = [(segment, known.carrier(segment)) for segment in segments]
    by_layer: dict[str, Pieces] = defaultdict(list)
    for segment, carrier in pieces:
        by_layer[segment.layer].append((segment, carrier))
    order = [*LAYERS, UNATTRIBUTED]
    unknown: Tally[str] = Tally()
    whole = LaneTime(**_split(pieces, unknown))
    foreign_ns, held_up_ns = _by_others(evidence, pieces, window)
    wall_ns = window[1] - window[0]
    return CoreWaits(
        whole=whole,
        layers=tuple(LayerWaits(layer=layer, **_split(by_layer[layer])) for layer in sorted(by_layer, key=order.index)),
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
    overlaps: Tally[tuple[Carrier, int]] = Tally()
    ns = 0
    for segment, carrier in pieces:
        length_ns = segment.end_ns - segment.start_ns
        ns += length_ns
        if isinstance(carrier, str):
            why = carrier
        else:
            why = BETWEEN
            for index, overlap_ns in carrier.overlaps(segment.start_ns, segment.end_ns):
                overlaps[carrier, index] += overlap_ns
                length_ns -= overlap_ns
        if unknown is not None:
            unknown[why] += length_ns
    states = dict.fromkeys(
        ("on_core_ns", "on_core_lo_ns", "on_core_hi_ns", "waiting_ns", "waiting_lo_ns", "waiting_hi_ns"), 0
    )
    known_ns = sum(overlaps.values())
    for (carrier, index), overlap_ns in overlaps.items():
        length_ns, *grown = carrier.stretch(index)
        for name, grown_ns in zip(("on_core", "waiting"), grown, strict=True):
            states[f"{name}_ns"] += grown_ns * overlap_ns // length_ns
            states[f"{name}_lo_ns"] += max(0, grown_ns - (length_ns - overlap_ns))
            states[f"{name}_hi_ns"] += min(grown_ns, overlap_ns)
    blocked_ns = known_ns - states["on_core_ns"] - states["waiting_ns"]
    return {"ns": ns, **states, "blocked_ns": blocked_ns, "unknown_ns": ns - known_ns}


def _by_others(evidence: Evidence, pieces: Pieces, window: Window) -> tuple[int | None, int | None]:
    """Return the CPU time of foreign processes and the run's wait for the cores they used; None if unknown."""
    host = evidence.resources
    topology = evidence.topology
    if host is None or topology.external or topology.by_hand or len(host.samples) < 2:
        return None, None
    ends = [segment.end_ns for segment, _ in pieces]
    foreign_ns = held_up_ns = 0
    for (before, after), (own_ns, busy_ns) in _foreign(host):
        start_ns, end_ns = max(before, window[0]), min(after, window[1])
        if start_ns >= end_ns or not busy_ns:
            continue
        others_ns = max(0, busy_ns - own_ns)
        foreign_ns += others_ns * (end_ns - start_ns) // (after - before)
        waited_ns = 0
        for segment, carrier in islice(pieces, bisect_right(ends, start_ns), None):  # they tile the window
            if segment.start_ns >= end_ns:
                break
            if isinstance(carrier, Carrier):
                waited_ns += carrier.waiting_ns(max(segment.start_ns, start_ns), min(segment.end_ns, end_ns))
        held_up_ns += waited_ns * others_ns // busy_ns
    return foreign_ns, held_up_ns


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
