"""Replays a trace with some time removed, for an upper bound of the saved wall time. Pure.

The attributed wall time is one critical path through the lanes. One second less in a span of this path may save less
than one second, because the critical path may then go through another lane. So the whole trace is replayed:

    own time    of a span keeps its duration, or the retained share of it
    a wait      ends when the last of its lanes reaches the position that it had at the wait's end; a delay after that,
                such as a poll or a message in transit, stays
    collective  ends when the last member has entered it; a delay after that stays
    a lane      begins when the lane that waits for it reaches its old position at that time

With nothing removed, every instant stays where it is, to the nanosecond. The result is an upper bound: a replay keeps
only recorded waits, so that an event may move before an unrecorded dependency.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

from dlobd.attribution.attribute import arranged
from dlobd.attribution.nesting import Piece
from dlobd.attribution.trace import Span, Trace
from dlobd.schema import MAIN_LANE

Retain = Callable[[Span, bool], Fraction | int]
"""Retained share of a span's time, 0 to 1. The second argument is True for a sleep and for the rest of a wait after its
release, and False for the span's own work."""


class WhatIf:
    """A trace that can be replayed."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lanes = arranged(trace)
        self.starts: dict[str, list[int]] = {
            name: [piece.start_ns for piece in lane.pieces] for name, lane in self.lanes.items()
        }
        self.members: dict[str, list[Span]] = defaultdict(list)
        for span in trace.spans:
            if span.rendezvous:
                self.members[span.rendezvous].append(span)
        self.waiting = _waiting(trace)

    def wall_ns(self, retain: Retain) -> int:
        """Return the duration of the window with the retained shares."""
        return _Replay(self, retain).at(MAIN_LANE, self.trace.end_ns) - self.trace.start_ns

    def saved_ns(self, retain: Retain) -> int:
        """Return an upper bound of the saved wall time; at least 0."""
        return max(0, self.trace.wall_ns - self.wall_ns(retain))


def _waiting(trace: Trace) -> dict[str, str]:
    """Map each lane to the first lane that waits for it, preferably a lane that began earlier."""
    begins: dict[str, int] = {}
    for span in trace.spans:
        begins[span.lane] = min(begins.get(span.lane, span.start_ns), span.start_ns)
    found: dict[str, tuple[bool, int, str]] = {}
    for span in trace.spans:
        for lane in span.waits_for:
            if lane != span.lane:
                later = begins[span.lane] >= begins.get(lane, span.end_ns)
                found[lane] = min(found.get(lane, (True, span.start_ns, span.lane)), (later, span.start_ns, span.lane))
    return {lane: by for lane, (_, _, by) in found.items()}


class _Replay:
    """One replay. `_done` maps each lane to the new ends of the pieces that are replayed so far."""

    def __init__(self, what_if: WhatIf, retain: Retain) -> None:
        self._of = what_if
        self._retain = retain
        self._done: dict[str, list[int]] = {name: [] for name in what_if.lanes}
        self._busy: set[str] = set()  # lanes in progress: a wait that leads back to such a lane is ignored

    def at(self, lane: str, at_ns: int) -> int:
        """Return the new position of an instant of a lane."""
        index = bisect_left(self._of.starts[lane], at_ns) - 1
        if index < 0:
            return at_ns
        pieces, done = self._of.lanes[lane].pieces, self._done[lane]
        whole = at_ns >= pieces[index].end_ns
        if lane in self._busy:
            return self._roughly(pieces, done, min(index, len(done)), at_ns)
        self._busy.add(lane)
        while len(done) < index + whole:
            piece = pieces[len(done)]
            done.append(self._end(lane, piece, done[-1] if done else piece.start_ns, piece.end_ns))
        piece, begin_ns = pieces[index], done[index - 1] if index else pieces[index].start_ns
        found = done[index] if whole else self._end(lane, piece, begin_ns, at_ns)
        self._busy.discard(lane)
        return found

    def _roughly(self, pieces: Sequence[Piece], done: list[int], index: int, at_ns: int) -> int:
        """Estimate `at` for a lane in progress: interpolate in replayed pieces, keep the old distance in later
        pieces."""
        piece = pieces[index]
        begin_ns = done[index - 1] if index else piece.start_ns
        if index < len(done):
            passed_ns = min(at_ns, piece.end_ns) - piece.start_ns
            return begin_ns + (done[index] - begin_ns) * passed_ns // (piece.end_ns - piece.start_ns)
        return begin_ns + at_ns - piece.start_ns

    def _is_known(self, lane: str, at_ns: int) -> bool:
        """Return True if the new position of that instant can be computed without a cycle."""
        return lane not in self._busy or bisect_left(self._of.starts[lane], at_ns) <= len(self._done[lane])

    def _end(self, lane: str, piece: Piece, begin_ns: int, until_ns: int) -> int:
        """Return the new end of a piece, or of its first part, that begins at `begin_ns`."""
        span = piece.span
        if span is None:
            return self._begin_of_next(lane, piece, begin_ns, until_ns)
        if span.rendezvous:
            entered = [m for m in self._of.members[span.rendezvous] if m.start_ns <= until_ns]
            last_ns = max((member.start_ns for member in entered), default=piece.start_ns)
            released_ns = min(max(last_ns, piece.start_ns), until_ns)
            now_ns = max([begin_ns, *(self._entry(lane, piece, begin_ns, member) for member in entered)])
            return now_ns + self._part(span, until_ns - released_ns, False)
        if span.waits_for:
            released_ns = until_ns if span.released_ns is None else span.released_ns
            released_ns = min(max(released_ns, piece.start_ns), until_ns)
            now_ns = self._released(span, piece.start_ns, begin_ns, released_ns)
            return now_ns + self._part(span, until_ns - released_ns, True)
        if span.cause:
            length_ns = until_ns - piece.start_ns
            slept_ns = min(length_ns, span.cause_period_ns)
            return begin_ns + self._part(span, slept_ns, True) + self._part(span, length_ns - slept_ns, False)
        return begin_ns + self._part(span, until_ns - piece.start_ns, False)

    def _part(self, span: Span, length_ns: int, waited: bool) -> int:
        return int(length_ns * self._retain(span, waited))

    def _entry(self, lane: str, piece: Piece, begin_ns: int, member: Span) -> int:
        if member.lane == lane:
            return begin_ns + max(0, min(member.start_ns, piece.end_ns) - piece.start_ns)
        return self.at(member.lane, member.start_ns)

    def _released(self, span: Span, start_ns: int, begin_ns: int, released_ns: int) -> int:
        """Return the new release of a wait: after the last of its lanes, with the retained share of the old delay."""
        busy: dict[str, int] = {}
        for name in span.waits_for:
            known = self._of.lanes.get(name)
            until_ns = known.busy_until(released_ns) if known else None
            if until_ns is not None and until_ns > start_ns and self._is_known(name, until_ns):
                busy[name] = until_ns
        if not busy:
            return begin_ns + self._part(span, released_ns - start_ns, True)
        last_ns = max(busy.values())
        late_ns = self._part(span, released_ns - last_ns, True)
        return max(begin_ns, *(self.at(name, until_ns) + late_ns for name, until_ns in busy.items()))

    def _begin_of_next(self, lane: str, piece: Piece, begin_ns: int, until_ns: int) -> int:
        """Return the new end of a gap: when the waiting lane reaches the old end, or else after the old duration."""
        by = self._of.waiting.get(lane)
        if lane == MAIN_LANE or by is None:
            return begin_ns + until_ns - piece.start_ns
        return max(begin_ns if self._done[lane] else self._of.trace.start_ns, self.at(by, until_ns))
