"""Splits the wall time by the state of its threads: on a core, waiting for a core, or blocked. Pure.

The kernel counts each thread's time on a core and in the run queue; at all other times the thread is blocked. The
attributed wall time is one critical path through the lanes, and one thread executes a lane at each instant. So these
three states and the unknown rest partition the wall time. If a counter grows by G between two readings at an interval
of L, then o nanoseconds of a layer between them contain G * o / L, at least G - (L - o), and at most G and o. Time of a
process's other threads is not part of the wall time.

Delay by other processes: the run's waiting time, times the fraction of the machine's CPU time that they used meanwhile.
"""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from dlobd.attribution.trace import SEGMENT_LAYERS, Segments
from dlobd.columns import Covered, Ints, scaled
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import ProcessSample, SampledHost
from dlobd.measures.lane_threads import BETWEEN, Carrier, Carriers, Window
from dlobd.record.resources import CoreWaits, LaneTime, LayerWaits

HELD_UP = 0.02
"""Threshold of a busy machine: other processes' delay as a fraction of the wall time. Quiet runs vary by more."""

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
