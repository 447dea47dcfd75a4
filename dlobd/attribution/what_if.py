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
"""

from array import array
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from dlobd.attribution.columns import Columns
from dlobd.attribution.dependencies import Dependencies, Parts, Retained
from dlobd.attribution.nesting import Lanes
from dlobd.attribution.trace import Trace
from dlobd.columns import MOST, NONE, Codes, Ints, chunks, distinct, starts_of_runs

MOST_LEVELS = 64
"""Longest chain of waits that end at the same nanosecond; a longer chain counts as a cycle."""


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
        earlier_ns = self._earlier_ns(length_ns, first, end)
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
        inner, entries = nodes[nodes % stride > 0], len(found.entered)

        def number(position: Ints) -> Ints:
            """Return the last node until a position of a lane, or the node of an entry."""
            return np.where(position < 0, len(nodes) + NONE - position, np.searchsorted(nodes, position, "right") - 1)

        # an edge from an instant between two nodes leaves the node before it, with the removed time in between
        of_node = np.append(np.searchsorted(at, nodes), np.zeros(entries, np.int64))
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
        unexplained = np.zeros(len(nodes) + entries, np.bool_)
        if len(to):
            first = starts_of_runs(self._to)
            unexplained[self._to[first]] = np.minimum.reduceat(self._lengths_ns(None), first) > 0
        unexplained[len(nodes) :] = False
        self._parts.free_ns[(order < len(inner)) & unexplained[self._to]] = 0
        self._steps.keep(of_node[unexplained])
        self._kept_ns = self._lengths_ns(None)

    @cached_property
    def _slack_after_ns(self) -> Ints:
        """Slack on the shortest path from each node to the end of the window."""
        found = array("q", [2 * MOST]) * (int(self._to.max()) + 1)
        found[self._last] = 0
        for to, source, ns in _rows(self._to[::-1], self._source[::-1], self._kept_ns[::-1]):
            if (slack_ns := found[to] + ns) < found[source]:
                found[source] = slack_ns
        return np.array(found)

    def _lengths_ns(self, retained: Retained | None) -> Ints:
        """Return the lengths of the edges."""
        passed_ns = np.cumsum(self._steps.removed_ns(retained))
        return passed_ns[self._until] - passed_ns[self._from] + self._parts.removed_ns(retained)

    def _earlier_ns(self, length_ns: Ints, first: int, end: int) -> Ints:
        """Return the time by which each node moves: the length of the shortest path to it. `first` and `end`: edges
        that count; nodes before do not move."""
        initial = np.zeros(int(self._to.max()) + 1, np.int64)
        initial[self._to[first:]] = 2 * MOST
        found = array("q", initial.tobytes())
        for to, source, ns in _rows(self._to[first:end], self._source[first:end], length_ns[first:end]):
            if (earlier_ns := found[source] + ns) < found[to]:
                found[to] = earlier_ns
        return np.array(found)


def _rows(*columns: Ints | Codes) -> Iterator[tuple[int, ...]]:
    """Yield rows as Python integers."""
    for chunk in chunks(*columns):
        yield from zip(*(column.tolist() for column in chunk), strict=True)


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
