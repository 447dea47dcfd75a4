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

An instant moves earlier by the shortest path to it. Its nodes are instants of lanes that wait or that others wait for,
and the entries into collectives. The length of an edge is the removed time, and the slack: the time by which the
dependency was not the last.

A position of a lane is on the axis of `Lanes`. An entry into a collective has the position NONE minus its number, in
the order of collectives and start times.
"""

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dlobd.attribution.nesting import Lanes
from dlobd.attribution.trace import Columns, Trace
from dlobd.columns import (
    MOST,
    NONE,
    Codes,
    Flags,
    Ints,
    Table,
    begins_of_runs,
    chunks,
    distinct,
    scaled,
    starts_of_runs,
)

MOST_LEVELS = 64
"""Longest chain of waits that end at the same nanosecond; a longer chain counts as a cycle."""


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


class Dependencies:
    """Dependencies between lanes.

    entered: position of each entry into a collective.
    at: sorted positions: ends of all pieces, and the instants on which others depend.
    edges: columns of positions, of the positions on which they depend, and of the `Parts` of the time in between.
    steps: parts of the time between each position in `at` and that before, in a lane.
    """

    def __init__(self, columns: Columns, lanes: Lanes) -> None:
        self._columns, self._lanes, self._waiting = columns, lanes, _waiting(columns)
        members, group, lane = columns.members, columns.group[columns.members], columns.lane[columns.members]
        self.entered = np.maximum(lanes.position(lane, columns.start_ns[members]), lane * lanes.stride)
        self._entered = np.full(len(columns) + 1, NONE)
        self._entered[members] = self.entered
        table, number, offset = Table(6), NONE - np.arange(len(members)), self.entered % lanes.stride
        self._entered_at = np.append(offset, 0)
        later = np.flatnonzero(~begins_of_runs(group))
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
        last = np.where(group == NONE, NONE, columns.last_member(group, lanes.time_ns(until)))
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
        place, by = columns.releasing(row[waits])
        waits = waits[place]
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
    row, lane = columns.releasing(np.arange(len(columns)))
    other = (lane != NONE) & (lane != columns.lane[row])
    row, lane = row[other], lane[other]
    begins = np.full(len(columns.lanes), np.iinfo(np.int64).max)
    np.minimum.at(begins, columns.lane, columns.start_ns)
    known = np.isin(lane, columns.lane)
    later = begins[columns.lane[row]] >= np.where(known, begins[lane], columns.end_ns[row])
    names = np.argsort(np.argsort(np.array(columns.lanes)))
    order = np.lexsort((names[columns.lane[row]], columns.start_ns[row], later, lane))
    found = np.full(len(columns.lanes), NONE)
    first = order[starts_of_runs(lane[order])]
    found[lane[first]] = columns.lane[row[first]]
    return found


class WhatIf:
    """A trace that can be replayed. The nodes are numbered: first those in lanes, then entries into collectives."""

    def __init__(self, trace: Trace) -> None:
        self.columns = Columns(trace.spans)
        self.lanes = Lanes(self.columns, trace.start_ns, trace.end_ns)
        self._is_empty = not (self.lanes.wall_ns and len(self.columns))
        if not self._is_empty:
            self._build()

    def saved_ns(self, retained: Retained) -> int:
        """Return an upper bound of the saved wall time; at least 0."""
        if self._is_empty:
            return 0
        length_ns = self._lengths_ns(retained)
        changed = np.flatnonzero(length_ns != self._kept_ns)
        if not len(changed):
            return 0
        # nothing moves before the first removed time; after the last, only slack counts
        first, end = np.searchsorted(self._rank, self._rank[changed[[0, -1]]] + [0, 1]).tolist()
        initial_ns = np.zeros(self._size, np.int64)
        initial_ns[self._to[first:]] = 2 * MOST
        earlier_ns = _shortest(initial_ns, self._to[first:end], self._source[first:end], length_ns[first:end])
        later = np.zeros(len(earlier_ns), np.bool_)
        later[self._to[end:]] = True
        if not later[self._last]:
            return int(earlier_ns[self._last])
        over = end + np.flatnonzero(~later[self._source[end:]])
        after_ns = self._kept_ns[over] + self._slack_after_ns[self._to[over]]
        return int((earlier_ns[self._source[over]] + after_ns).min())

    def _build(self) -> None:
        """Give the nodes numbers, and sort the edges by the time of their ends."""
        found = Dependencies(self.columns, self.lanes)
        at, (to, source, *parts), stride = found.at, found.edges, self.lanes.stride
        starts = np.arange(len(self.columns.lanes)) * stride
        nodes = distinct(to[to >= 0], starts, np.array([self.lanes.wall_ns]))
        inner, self._size = nodes[nodes % stride > 0], len(nodes) + len(found.entered)

        def number(position: Ints) -> Ints:
            """Return the last node until a position of a lane, or the node of an entry."""
            return np.where(position < 0, len(nodes) + NONE - position, np.searchsorted(nodes, position, "right") - 1)

        # an edge from an instant between two nodes leaves the node before it, with the removed time in between
        of_node = np.append(np.searchsorted(at, nodes), np.zeros_like(found.entered))
        until = np.append(inner, source)
        to, source = number(np.append(inner, to)), number(np.append(inner - 1, source))
        until = np.where(until < 0, 0, np.searchsorted(at, until))
        chain = np.full(len(inner), NONE), *np.zeros((2, len(inner)), np.int64), found.omitted(inner) * MOST
        order, self._rank = _by_time(np.append(nodes, found.entered) % stride, to, source)
        self._to, self._source, self._from, self._until = (
            column[order].astype(np.int32) for column in (to, source, of_node[source], until)
        )
        self._parts = Parts(*(np.append(*column)[order] for column in zip(chain, parts, strict=True)))
        self._steps, self._last = found.steps, int(number(np.array([self.lanes.wall_ns]))[0])
        # a wait in a cycle of waits, or for a lane that was not late: no edge explains it, and so it keeps its time
        unexplained, first = np.zeros(self._size, np.bool_), starts_of_runs(self._to)
        unexplained[self._to[first]] = np.minimum.reduceat(self._lengths_ns(None), first) > 0
        unexplained[len(nodes) :] = False
        self._parts.free_ns[(order < len(inner)) & unexplained[self._to]] = 0
        kept = of_node[unexplained]
        self._steps.waits_ns[kept] += self._steps.free_ns[kept]
        self._steps.free_ns[kept] = 0
        self._kept_ns = self._lengths_ns(None)

    @cached_property
    def _slack_after_ns(self) -> Ints:
        """Slack on the shortest path from each node to the end of the window."""
        initial_ns = np.full(self._size, 2 * MOST)
        initial_ns[self._last] = 0
        return _shortest(initial_ns, self._source[::-1], self._to[::-1], self._kept_ns[::-1])

    def _lengths_ns(self, retained: Retained | None) -> Ints:
        """Return the lengths of the edges."""
        passed_ns = np.cumsum(self._steps.removed_ns(retained))
        return passed_ns[self._until] - passed_ns[self._from] + self._parts.removed_ns(retained)


def _shortest(initial_ns: Ints, to: Codes, source: Codes, length_ns: Ints) -> Ints:
    """Return the lengths of the shortest paths to nodes: the times by which they move. An edge is after all edges to
    its source."""
    found = array("q", initial_ns.tobytes())
    for chunk in chunks(to, source, length_ns):
        for end, begin, ns in zip(*(column.tolist() for column in chunk), strict=True):
            if (passed_ns := found[begin] + ns) < found[end]:
                found[end] = passed_ns
    return np.array(found)


def _by_time(time_ns: Ints, to: Ints, source: Ints) -> tuple[Ints, Codes]:
    """Sort edges by the time of their ends; of equal times, sources are first. Returns the order and the ranks of the
    ends. Omits edges that close a cycle."""
    level = np.zeros(len(time_ns), np.int64)
    equal = time_ns[to] == time_ns[source]
    after, before = to[equal], source[equal]
    for _ in range(MOST_LEVELS):
        some = level[after] <= level[before]
        if not some.any():
            break
        np.maximum.at(level, after[some], level[before[some]] + 1)
    rank = np.zeros(len(time_ns), np.int32)
    rank[np.lexsort((level, time_ns))] = np.arange(len(time_ns))
    order = np.flatnonzero(rank[source] < rank[to])
    order = order[np.argsort(rank[to[order]], kind="stable")]
    return order, rank[to[order]]
