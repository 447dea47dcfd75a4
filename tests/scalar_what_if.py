"""Reference for `dlobd.attribution.what_if`: the same rules as a recursion over single pieces of lanes.

A wait that leads back to a lane in progress is a cycle: there the reference estimates, and differs from the product.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

import numpy as np

from dlobd.attribution.nesting import Lanes
from dlobd.attribution.trace import Columns, Trace
from dlobd.attribution.what_if import Retained
from dlobd.columns import NONE, starts_of_runs


class WhatIf:
    """A trace that can be replayed."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        columns = Columns(trace.spans)
        lanes = Lanes(columns, trace.start_ns, trace.end_ns)
        lane = lanes.at // lanes.stride
        inner = np.flatnonzero(lanes.at[:-1] % lanes.stride != lanes.wall_ns)
        self.begins: list[int] = lanes.time_ns(lanes.at[inner]).tolist()
        self.ends: list[int] = (lanes.at[inner + 1] - lane[inner] * lanes.stride + lanes.start_ns).tolist()
        self.owner: list[int] = lanes.owner[inner].tolist()
        self.bounds: list[int] = np.searchsorted(lane[inner], np.arange(len(columns.lanes) + 1)).tolist()
        self.waiting = _waiting(columns)
        self.group: list[int] = columns.group.tolist()
        self.released_ns: list[int | None] = [
            at_ns if known else None
            for at_ns, known in zip(columns.released_ns.tolist(), columns.is_released.tolist(), strict=True)
        ]
        self.period_ns: list[int] = columns.period_ns.tolist()
        self.has_cause: list[bool] = (columns.cause != NONE).tolist()
        self.members = _members(columns)
        rows, releasing = columns.releasing(np.arange(len(columns)))
        first = np.searchsorted(rows, np.arange(len(columns) + 1)).tolist()
        self.waits_for = [releasing[a:b].tolist() if b > a else () for a, b in pairwise(first)]

    def wall_ns(self, retained: Retained) -> int:
        """Return the duration of the window with the retained shares."""
        replay = _Replay(self, retained)
        end_ns = replay.at(0, self.trace.end_ns)
        self.has_cycle = replay.has_cycle
        return end_ns - self.trace.start_ns

    def saved_ns(self, retained: Retained) -> int:
        """Return an upper bound of the saved wall time; at least 0."""
        return max(0, self.trace.wall_ns - self.wall_ns(retained))


def _members(columns: Columns) -> list[tuple[list[int], list[int]]]:
    """Return start times and lanes of the members of each collective, by start."""
    rows = np.flatnonzero(columns.group != NONE)
    rows = rows[np.lexsort((columns.start_ns[rows], columns.group[rows]))]
    at = [*starts_of_runs(columns.group[rows]).tolist(), len(rows)] if len(rows) else []
    starts_ns, lanes = columns.start_ns[rows].tolist(), columns.lane[rows].tolist()
    return [(starts_ns[a:b], lanes[a:b]) for a, b in pairwise(at)]


def _waiting(columns: Columns) -> list[int]:
    """Return for each lane the first lane that waits for it, preferably a lane that began earlier; NONE without one."""
    begins: dict[int, int] = {}
    for lane, start_ns in zip(columns.lane.tolist(), columns.start_ns.tolist(), strict=True):
        begins[lane] = min(start_ns, begins.get(lane, start_ns))
    first: dict[int, tuple[bool, int, str]] = {}
    for row, awaited in np.stack(columns.releasing(np.arange(len(columns))), axis=1).tolist():
        own = int(columns.lane[row])
        later = begins[own] >= begins.get(awaited, int(columns.end_ns[row]))
        key = later, int(columns.start_ns[row]), columns.lanes[own]
        if awaited not in (NONE, own):
            first[awaited] = min(key, first.get(awaited, key))
    return [columns.lanes.index(first[lane][2]) if lane in first else NONE for lane in range(len(columns.lanes))]


class _Replay:
    """One replay. `_done` has the new ends of the pieces that are replayed so far; `_next` the next piece of each
    lane."""

    def __init__(self, what_if: WhatIf, retained: Retained) -> None:
        self._of = what_if
        self._own: list[int] = retained.own.tolist()
        self._waits: list[int] = retained.waits.tolist()
        self._whole: list[int] = retained.of.tolist()
        self._done = [0] * len(what_if.begins)
        self._next = what_if.bounds[:-1]
        self._entered: dict[tuple[int, int], int] = {}
        self.has_cycle = False
        self._busy: set[int] = set()  # lanes in progress: a wait that leads back to such a lane is ignored

    def at(self, lane: int, at_ns: int) -> int:
        """Return the new position of an instant of a lane."""
        of, done = self._of, self._done
        first, last = of.bounds[lane], of.bounds[lane + 1]
        index = bisect_left(of.begins, at_ns, first, last) - 1
        if index < first:
            return at_ns
        whole = at_ns >= of.ends[index]
        if lane in self._busy:
            return self._roughly(lane, min(index, self._next[lane]), at_ns)
        self._busy.add(lane)
        while self._next[lane] < index + whole:
            piece = self._next[lane]
            begin_ns = done[piece - 1] if piece > first else of.begins[piece]
            done[piece] = self._end(lane, piece, begin_ns, of.ends[piece])
            self._next[lane] += 1
        begin_ns = done[index - 1] if index > first else of.begins[index]
        found = done[index] if whole else self._end(lane, index, begin_ns, at_ns)
        self._busy.discard(lane)
        return found

    def _roughly(self, lane: int, piece: int, at_ns: int) -> int:
        """Estimate `at` for a lane in progress: interpolate in replayed pieces, keep the old distance in later
        pieces."""
        self.has_cycle = True
        of, start_ns = self._of, self._of.begins[piece]
        begin_ns = self._done[piece - 1] if piece > of.bounds[lane] else start_ns
        if piece < self._next[lane]:
            passed_ns = min(at_ns, of.ends[piece]) - start_ns
            return begin_ns + (self._done[piece] - begin_ns) * passed_ns // (of.ends[piece] - start_ns)
        return begin_ns + at_ns - start_ns

    def _is_known(self, lane: int, at_ns: int) -> bool:
        """Return True if the new position of that instant can be computed without a cycle."""
        of = self._of
        known = lane not in self._busy or bisect_left(of.begins, at_ns, *of.bounds[lane : lane + 2]) <= self._next[lane]
        self.has_cycle |= not known
        return known

    def _end(self, lane: int, piece: int, begin_ns: int, until_ns: int) -> int:
        """Return the new end of a piece, or of its first part, that begins at `begin_ns`."""
        of, row, start_ns = self._of, self._of.owner[piece], self._of.begins[piece]
        if row == NONE:
            return self._begin_of_next(lane, piece, begin_ns, until_ns)
        if of.group[row] != NONE:
            starts_ns, _ = of.members[of.group[row]]
            count = bisect_right(starts_ns, until_ns)
            last_ns = starts_ns[count - 1] if count else start_ns
            released_ns = min(max(last_ns, start_ns), until_ns)
            return max(begin_ns, self._entry(lane, piece, begin_ns, count)) + self._part(row, until_ns - released_ns)
        if of.waits_for[row]:
            known_ns = of.released_ns[row]
            released_ns = min(max(until_ns if known_ns is None else known_ns, start_ns), until_ns)
            now_ns = self._released(row, start_ns, begin_ns, released_ns)
            return now_ns + self._part(row, until_ns - released_ns, True)
        if of.has_cause[row]:
            length_ns = until_ns - start_ns
            slept_ns = min(length_ns, of.period_ns[row])
            return begin_ns + self._part(row, slept_ns, True) + self._part(row, length_ns - slept_ns)
        return begin_ns + self._part(row, until_ns - start_ns)

    def _part(self, row: int, length_ns: int, waited: bool = False) -> int:
        return length_ns * (self._waits if waited else self._own)[row] // self._whole[row]

    def _entry(self, lane: int, piece: int, begin_ns: int, count: int) -> int:
        """Return the new time of the last entry of the first `count` members of a collective."""
        of = self._of
        group = of.group[of.owner[piece]]
        if (found := self._entered.get((group, count))) is not None:
            return found
        starts_ns, lanes = of.members[group]
        latest_ns, start_ns, end_ns = begin_ns, of.begins[piece], of.ends[piece]
        for member_ns, member in zip(starts_ns[:count], lanes, strict=False):
            if member == lane:
                entry_ns = begin_ns + max(0, min(member_ns, end_ns) - start_ns)
            else:
                entry_ns = self.at(member, member_ns)
            latest_ns = max(latest_ns, entry_ns)
        self._entered[group, count] = latest_ns
        return latest_ns

    def _busy_until(self, lane: int, at_ns: int) -> int | None:
        """Return the latest instant until `at_ns` at which a span was open; None if no span was open."""
        of, first = self._of, self._of.bounds[lane]
        piece = bisect_left(of.begins, at_ns, first, of.bounds[lane + 1]) - 1
        if piece >= first and of.owner[piece] == NONE:
            piece -= 1  # two pieces without a span never touch
        return min(of.ends[piece], at_ns) if piece >= first else None

    def _released(self, row: int, start_ns: int, begin_ns: int, released_ns: int) -> int:
        """Return the new release of a wait: after the last of its lanes, with the retained share of the old delay."""
        busy: dict[int, int] = {}
        for lane in self._of.waits_for[row]:
            until_ns = self._busy_until(lane, released_ns) if lane != NONE else None
            if until_ns is not None and until_ns > start_ns and self._is_known(lane, until_ns):
                busy[lane] = until_ns
        if not busy:
            return begin_ns + self._part(row, released_ns - start_ns, True)
        late_ns = self._part(row, released_ns - max(busy.values()), True)
        return max(begin_ns, *(self.at(lane, until_ns) + late_ns for lane, until_ns in busy.items()))

    def _begin_of_next(self, lane: int, piece: int, begin_ns: int, until_ns: int) -> int:
        """Return the new end of a gap: when the waiting lane reaches the old end, or else after the old duration."""
        by = self._of.waiting[lane]
        if lane == 0 or by == NONE:
            return begin_ns + until_ns - self._of.begins[piece]
        begun = self._next[lane] > self._of.bounds[lane]
        return max(begin_ns if begun else self._of.trace.start_ns, self.at(by, until_ns))
