"""How long a run would have been with less of something: its trace, replayed with some time taken out. Pure.

The attributed wall is one chain of lanes. To take an hour out of a span of that chain need not make the run an hour
shorter: another lane may be waited for just beside it. So the whole trace is replayed, lane by lane:

    own time    of a span is as long as before, or the share of it that is kept
    a wait      ends when the last of the lanes that it waits for is as far as it was at the wait's end, and as much
                later as it was: a poll, a message on its way
    collective  ends when the last member has entered it, and as much later as it did
    a lane      begins when the lane that waits for it is where it was at that time

With nothing taken out every instant stays where it is, to the nanosecond. What is computed is the most that can be
saved: a replay knows no cause but those waits, so that it lets things happen earlier that something unseen may hold up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

from dlobd.attribution.attribute import arranged
from dlobd.attribution.nesting import Piece
from dlobd.schema import MAIN_LANE, Span, Trace

Kept = Callable[[Span, bool], Fraction | int]
"""Which share of a span's time is kept, 0 to 1; the second argument: of the rest of a wait that is over, or of a sleep,
and not of what the span itself does."""


def everything(span: Span, waited: bool) -> int:
    """Keeps all."""
    return 1


class WhatIf:
    """A trace, to be replayed."""

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

    def wall_ns(self, kept: Kept) -> int:
        """The length of the window if only so much of each span were kept."""
        return _Replay(self, kept).at(MAIN_LANE, self.trace.end_ns) - self.trace.start_ns

    def saved_ns(self, kept: Kept) -> int:
        """By how much the window would be shorter at most; never less than 0."""
        return max(0, self.trace.wall_ns - self.wall_ns(kept))


def _waiting(trace: Trace) -> dict[str, str]:
    """For each lane the lane that is the first to wait for it: one that began before it did, where there is one. A
    lane that begins with it, as a rank's does with its executor's, begins because of it."""
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
    """One pass. `_done` has for each lane where its pieces end now, of those that have been gone through."""

    def __init__(self, what_if: WhatIf, kept: Kept) -> None:
        self._of = what_if
        self._kept = kept
        self._done: dict[str, list[int]] = {name: [] for name in what_if.lanes}
        self._busy: set[str] = set()  # lanes that are being gone through: a wait that leads back to one says nothing

    def at(self, lane: str, at_ns: int) -> int:
        """Where an instant of a lane lies now."""
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
        """The same while that lane is being gone through: in proportion in what is done, as far away in what is not."""
        piece = pieces[index]
        begin_ns = done[index - 1] if index else piece.start_ns
        if index < len(done):
            passed_ns = min(at_ns, piece.end_ns) - piece.start_ns
            return begin_ns + (done[index] - begin_ns) * passed_ns // (piece.end_ns - piece.start_ns)
        return begin_ns + at_ns - piece.start_ns

    def _is_known(self, lane: str, at_ns: int) -> bool:
        """Whether where that instant lies now can be told without going round in a circle."""
        return lane not in self._busy or bisect_left(self._of.starts[lane], at_ns) <= len(self._done[lane])

    def _end(self, lane: str, piece: Piece, begin_ns: int, until_ns: int) -> int:
        """Where a piece, or its first part, ends now, if it begins at `begin_ns`."""
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
        return int(length_ns * self._kept(span, waited))

    def _entry(self, lane: str, piece: Piece, begin_ns: int, member: Span) -> int:
        """When a member enters its collective now."""
        if member.lane == lane:
            return begin_ns + max(0, min(member.start_ns, piece.end_ns) - piece.start_ns)
        return self.at(member.lane, member.start_ns)

    def _released(self, span: Span, start_ns: int, begin_ns: int, released_ns: int) -> int:
        """When a wait is released now: after the last of its lanes, by as much as it was; the reaction to it can be
        shortened like what follows the release."""
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
        """A lane in which nothing is open goes on when who waits for it says so; else after as long as before."""
        by = self._of.waiting.get(lane)
        if lane == MAIN_LANE or by is None:
            return begin_ns + until_ns - piece.start_ns
        return max(begin_ns if self._done[lane] else self._of.trace.start_ns, self.at(by, until_ns))
