"""Arrays of integers, and numbers for values that repeat. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
"""Numbers of values, as in `Numbers`."""
Flags = NDArray[np.bool_]

NONE = -1
"""Number of a row, lane, group, name or cause that does not exist."""

CHUNK = 200_000
"""Rows of columns that are handled at a time."""

MOST = 2**61
"""Largest absolute value in a column: sums and differences of two values fit. Larger times of damaged evidence are
outside of any window."""


class Rows(Sequence[T]):
    """Columns whose rows are made when they are read."""

    def rows(self, places: Ints) -> Iterator[T]:
        """Yield the rows at these places."""
        raise NotImplementedError

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return list(self.rows(np.arange(len(self))[at]))
        return next(self.rows(np.array([range(len(self))[at]])))

    def __iter__(self) -> Iterator[T]:
        return self.rows(np.arange(len(self)))


class Numbers(dict[T, int]):
    """Number of each value, in the order of their first use as a key."""

    def __missing__(self, value: T) -> int:
        return self.setdefault(value, len(self))


def ints(values: list[int]) -> Ints:
    """Return a column; limits values to `MOST`."""
    try:
        found = np.array(values, np.int64)
    except OverflowError:
        found = np.array([max(-MOST, min(value, MOST)) for value in values], np.int64)
    limited: Ints = np.clip(found, -MOST, MOST)
    return limited


def scaled(value: Ints, part: Ints, whole: Ints) -> Ints:
    """Return value * part // whole, exactly, of values and parts that are not negative."""
    small = value.astype(np.float64) * part < MOST
    found: Ints = np.where(small, value, 0) * part // whole
    for at in np.flatnonzero(~small).tolist():  # the product has more than 64 bits
        found[at] = int(value[at]) * int(part[at]) // int(whole[at])
    return found


def begins_of_runs(*columns: Ints | Codes | Flags) -> Flags:
    """Return True for the first element of each run of equal rows."""
    first = np.ones(len(columns[0]), np.bool_)
    first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return first


def ends_of_runs(values: Ints) -> Flags:
    """Return True for the last element of each run of equal values."""
    return begins_of_runs(values[::-1])[::-1]


def starts_of_runs(*columns: Ints | Codes | Flags) -> Ints:
    """Return the places at which runs of equal rows begin."""
    return np.flatnonzero(begins_of_runs(*columns))


def distinct(*columns: Ints) -> Ints:
    """Return the different values of columns, sorted. `np.unique` hashes: it needs ten times as long for timestamps."""
    found = np.sort(np.concatenate(columns))
    return found[starts_of_runs(found)]


def chunks(*columns: Ints | Codes | Flags) -> Iterator[Any]:
    """Yield equal parts of columns, so that arrays in between are small: a column, or a tuple of several."""
    for first in range(0, len(columns[0]), CHUNK):
        parts = tuple(column[first : first + CHUNK] for column in columns)
        yield parts if len(parts) > 1 else parts[0]


class Table:
    """Growing table of integers: blocks of rows, in columns."""

    def __init__(self, columns: int) -> None:
        self._blocks: list[tuple[Ints, ...]] = [(np.zeros(0, np.int64),) * columns]

    def add(self, *columns: Ints | int, where: Flags | None = None) -> None:
        """Add rows: those with the flag `where`, if it is given. An integer is the value of a whole column."""
        size = next(len(column) for column in columns if not isinstance(column, int))
        block = [np.full(size, column) if isinstance(column, int) else column for column in columns]
        self._blocks.append(tuple(block if where is None else [column[where] for column in block]))

    def take(self) -> list[Ints]:
        """Return all rows, and empty the table: each column is released as soon as it is joined."""
        parts = list(zip(*self._blocks, strict=True))[::-1]
        self._blocks.clear()
        return [np.concatenate(parts.pop()) for _ in range(len(parts))]


def places(first: Ints, sizes: Ints) -> Ints:
    """Return the places of runs, which begin at `first` and have these sizes, one run after the other."""
    found: Ints = np.arange(sizes.sum()) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)
    return found


class Covered:
    """Time in the union of intervals, before an instant."""

    def __init__(self, start_ns: Ints, end_ns: Ints) -> None:
        order = np.argsort(start_ns, kind="stable")
        start_ns, latest_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
        first = np.ones(len(order), np.bool_)
        first[1:] = start_ns[1:] > latest_ns[:-1]
        self._start_ns, self._end_ns = start_ns[first], latest_ns[np.append(first[1:], True)[: len(order)]]
        self._passed_ns = np.append(0, np.cumsum(self._end_ns - self._start_ns))

    def __call__(self, at_ns: Ints) -> Ints:
        count = np.searchsorted(self._start_ns, at_ns)
        left_ns = np.where(count > 0, np.maximum(0, np.append(0, self._end_ns)[count] - at_ns), 0)
        passed_ns: Ints = self._passed_ns[count] - left_ns
        return passed_ns
