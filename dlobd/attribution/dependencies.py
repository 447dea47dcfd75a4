"""Finds on which instants of other lanes the lanes of a trace depend, for replays. Pure.

A position of a lane is on the axis of `Lanes`. An entry into a collective has the position NONE minus its number, in
the order of collectives and start times.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlobd.attribution.columns import Columns
from dlobd.attribution.nesting import Lanes
from dlobd.columns import NONE, Flags, Ints, Table, begins_of_runs, chunks, distinct, places, scaled, starts_of_runs


@dataclass(frozen=True, slots=True)
class Retained:
    """Retained shares of the time of spans, 0 to 1.

    Row i keeps `own[i] / of[i]` of its work, and `waits[i] / of[i]` of its sleep and of its wait after the release."""

    own: Ints
    waits: Ints
    of: Ints


class Parts(NamedTuple):
    """Times before instants, in three parts: work and waits of the innermost open span, and the time that a replay may
    remove, because other lanes explain it. `row`: the span; NONE keeps its work and waits."""

    row: Ints
    own_ns: Ints
    waits_ns: Ints
    free_ns: Ints

    def removed_ns(self, retained: Retained | None) -> Ints:
        """Return the removed part of each time. `retained`: None keeps all work and waits."""
        found = self.free_ns.copy()
        if retained is not None:
            less = np.append((retained.own < retained.of) | (retained.waits < retained.of), False)
            some = np.flatnonzero(less[self.row])
            row, own_ns, waits_ns, _ = (column[some] for column in self)
            kept_ns = scaled(own_ns, retained.own[row], retained.of[row])
            kept_ns += scaled(waits_ns, retained.waits[row], retained.of[row])
            found[some] += own_ns + waits_ns - kept_ns
        return found

    def keep(self, places: Ints) -> None:
        """Keep the time that other lanes explain, as waits."""
        self.waits_ns[places] += self.free_ns[places]
        self.free_ns[places] = 0


class Dependencies:
    """Dependencies between lanes.

    entered: position of each entry into a collective.
    at: sorted positions: ends of all pieces, and the instants on which others depend.
    edges: columns of positions, of the positions on which they depend, and of the `Parts` of the time in between.
    steps: parts of the time between each position in `at` and that before, in a lane.
    """

    def __init__(self, columns: Columns, lanes: Lanes) -> None:
        self._columns, self._lanes, self._waiting = columns, lanes, _waiting(columns)
        rows, self._releasing = columns.releasing
        self._first_releasing = np.searchsorted(rows, np.arange(len(columns) + 1))
        members = np.flatnonzero(columns.group != NONE)
        members = members[np.lexsort((columns.start_ns[members], columns.group[members]))]
        starts_ns, group = columns.start_ns[members], columns.group[members]
        self._times_ns = distinct(starts_ns)
        self._entries = group * (len(self._times_ns) + 1) + np.searchsorted(self._times_ns, starts_ns)
        lane = columns.lane[members]
        self.entered = np.maximum(lanes.position(lane, starts_ns), lane * lanes.stride)
        self._entered = np.full(len(columns) + 1, NONE)
        self._entered[members] = self.entered
        table, number, offset = Table(6), NONE - np.arange(len(members)), self.entered % lanes.stride
        self._entered_at = np.append(offset, 0)
        later = np.flatnonzero(~begins_of_runs(group)) if len(group) else group
        table.add(number, self.entered, number * 0 + NONE, 0, 0, 0)
        table.add(number[later], number[later - 1], later * 0 + NONE, 0, 0, offset[later] - offset[later - 1])
        at, new = np.zeros(0, np.int64), distinct(lanes.at, self.entered)
        while len(new):
            links = [self._links(until) for until in chunks(new[new % lanes.stride > 0])]
            at, new = distinct(at, new), distinct(*(source[source >= 0] for _, source, *_ in links))
            new = new[at[np.searchsorted(at[:-1], new)] != new]
            for block in links:
                table.add(*block)
        self.at, self.edges = at, table.take()
        linked = np.zeros(len(at), np.bool_)
        linked[np.searchsorted(at, self.edges[0][self.edges[0] >= 0])] = True
        steps = Table(4)
        for until, before, depends in chunks(at, np.append(at[:1], at[:-1]), linked):
            steps.add(*self._between(before, until, depends))
        self.steps = Parts(*steps.take())

    def omitted(self, until: Ints) -> Flags:
        """Return True for ends of waits that begin at the entry of the member: the collective knows of the entry."""
        piece = np.searchsorted(self._lanes.at, until) - 1
        omitted: Flags = self._entered[self._lanes.owner[piece]] == self._lanes.at[piece]
        return omitted

    def _turn(self, piece: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Return the position at which pieces, which end at `until`, stop waiting or sleeping; and for a member of a
        collective the last member that enters before."""
        lanes, columns, row, start = self._lanes, self._columns, self._lanes.owner[piece], self._lanes.at[piece]
        lane = start // lanes.stride
        gap, span = row == NONE, np.maximum(row, 0)
        group = np.where(gap, NONE, columns.group[span])
        rank = np.searchsorted(self._times_ns, lanes.time_ns(until), "right")
        last = np.searchsorted(self._entries, group * (len(self._times_ns) + 1) + rank) - 1
        last = np.where(group == NONE, NONE, last)
        entered = self._entered_at[last] + lane * lanes.stride
        released = np.where(columns.is_released[span], lanes.position(lane, columns.released_ns[span]), until)
        turn = np.where(columns.waits[span], released, start + columns.period_ns[span])
        turn = np.where(group == NONE, turn, entered)
        turn = np.where(gap, np.where((lane > 0) & (self._waiting[lane] != NONE), until, start), turn)
        return np.clip(turn, start, until), last

    def _links(self, until: Ints) -> list[Ints]:
        """Return the edges from other lanes to instants: positions, their sources, and columns of `Parts`. The source
        of an entry into a collective is negative: NONE minus the member's number."""
        lanes, columns = self._lanes, self._columns
        piece = np.searchsorted(lanes.at, until) - 1
        row, start, (turn, last) = lanes.owner[piece], lanes.at[piece], self._turn(piece, until)
        lane, table = start // lanes.stride, Table(6)
        member = last != NONE
        slack_ns = turn % lanes.stride - self._entered_at[last]
        table.add(until, NONE - last, row, until - turn, 0, slack_ns, where=member)
        gap = np.flatnonzero((row == NONE) & (turn == until))
        back = lanes.position(self._waiting[lane[gap]], lanes.time_ns(until[gap]))
        table.add(until[gap], back, row[gap], 0, 0, 0)
        waits = np.flatnonzero(~member & (row != NONE) & columns.waits[np.maximum(row, 0)])
        first = self._first_releasing[row[waits]]
        sizes = self._first_releasing[row[waits] + 1] - first
        waits, by = np.repeat(waits, sizes), self._releasing[places(first, sizes)]
        busy, busy_ns = lanes.last_busy(by, lanes.time_ns(turn[waits]))
        some = (by != NONE) & (busy != NONE) & (busy_ns > lanes.time_ns(start[waits]))
        waits, by, busy_ns = waits[some], by[some], busy_ns[some]
        latest_ns = np.zeros_like(until)
        np.maximum.at(latest_ns, waits, busy_ns)
        waited_ns, free_ns = lanes.time_ns(until[waits]) - latest_ns[waits], latest_ns[waits] - busy_ns
        table.add(until[waits], lanes.position(by, busy_ns), row[waits], 0, waited_ns, free_ns)
        return table.take()

    def _between(self, before: Ints, until: Ints, linked: Flags) -> Parts:
        """Return the times between positions; 0 before a lane. `linked`: flags of ends with edges from other lanes."""
        piece = np.searchsorted(self._lanes.at, until) - 1
        row, (turn, _) = self._lanes.owner[piece], self._turn(piece, until)
        length = np.where(until % self._lanes.stride > 0, until - before, 0)
        first = np.clip(turn - before, 0, length)
        span = np.maximum(row, 0)
        waits = (row != NONE) & self._columns.waits[span] & (self._columns.group[span] == NONE)
        rest, waited = length - first, np.where(linked, 0, first)
        return Parts(row, np.where(waits, 0, rest), waited + np.where(waits, rest, 0), first - waited)


def _waiting(columns: Columns) -> Ints:
    """Return for each lane the first lane that waits for it, preferably a lane that began earlier; NONE without one."""
    row, lane = columns.releasing
    other = (lane != NONE) & (lane != columns.lane[row])
    row, lane = row[other], lane[other]
    begins = np.full(len(columns.lanes), np.iinfo(np.int64).max)
    np.minimum.at(begins, columns.lane, columns.start_ns)
    known = np.isin(lane, columns.lane)
    later = begins[columns.lane[row]] >= np.where(known, begins[lane], columns.end_ns[row])
    names = np.argsort(np.argsort(np.array(columns.lanes)))
    order = np.lexsort((names[columns.lane[row]], columns.start_ns[row], later, lane))
    found = np.full(len(columns.lanes), NONE)
    first = order[starts_of_runs(lane[order])] if len(order) else order
    found[lane[first]] = columns.lane[row[first]]
    return found
