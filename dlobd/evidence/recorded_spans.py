"""Spans of one process as its recorder wrote them: columns, and rows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dlobd import spans as kinds
from dlobd.columns import NONE, Codes, Flags, Ints, Numbers, Rows, ints
from dlobd.evidence.timestamp import Timestamp
from dlobd.layers import TENSORFLOW
from dlobd.spans import Details, JsonMap, SpanKind, kind_of

Wait = tuple[Details, str]
"""Recorded wait, and kind of its collective."""


@dataclass(slots=True)
class RecordedSpan:
    """A span as its process recorded it, before `dlobd.timeline` places it in a lane."""

    id: int
    parent: int
    layer: str
    name: str
    start_ns: int
    end_ns: int  # without a recorded end, the last evidence of the process
    truncated: bool
    wait: Details
    attrs: JsonMap
    thread: str
    rendezvous: str = ""  # kind of its collective, if any
    call: int | None = None  # number of the collective, or of the step

    @property
    def kind(self) -> SpanKind | None:
        """The row of this span in `dlobd.spans`; None without a row."""
        found = kind_of(self.layer, self.name)
        return found[0] if found else None

    @property
    def is_divided(self) -> bool:
        """True for a task in a Python worker with the sums of its parts."""
        parts = [self.attrs.get(name, -1) for name in ("read_ns", "serialise_ns", "write_ns")]
        parts.append(self.attrs.get("function_ns", 0))
        return {"evaluation", "how", "ns"} <= self.attrs.keys() and min(parts) >= 0 and sum(parts) <= self.attrs["ns"]


@dataclass(frozen=True, eq=False)
class RecordedSpans(Rows[RecordedSpan]):
    """Columns of recorded spans, in the order of the file.

    kind, thread, wait, attrs: places in `kinds` (layer and name), `threads`, `waits` and `attributes`.
    end_ns: without a recorded end, the last evidence of the process.
    call: number of the collective, or of the step; NONE without a number.
    errors_ns: errors of start and end, if the clock was aligned by messages.
    """

    id: Ints
    parent: Ints
    start_ns: Ints
    end_ns: Ints
    call: Ints
    kind: Codes
    thread: Codes
    wait: Codes
    attrs: Codes
    truncated: Flags
    kinds: Sequence[tuple[str, str]] = ()
    threads: Sequence[str] = ()
    waits: Sequence[Wait] = ()
    attributes: Sequence[JsonMap] = ()
    errors_ns: tuple[Ints, Ints] | None = None

    @classmethod
    def of(cls, rows: Iterable[RecordedSpan]) -> RecordedSpans:
        """Return the columns of rows."""
        rows, kinds_, threads = list(rows), Numbers[tuple[str, str]](), Numbers[str]()
        return cls(
            id=ints([row.id for row in rows]),
            parent=ints([row.parent for row in rows]),
            start_ns=ints([row.start_ns for row in rows]),
            end_ns=ints([row.end_ns for row in rows]),
            call=ints([NONE if row.call is None else row.call for row in rows]),
            kind=np.array([kinds_[row.layer, row.name] for row in rows], np.int32),
            thread=np.array([threads[row.thread] for row in rows], np.int32),
            wait=np.arange(len(rows), dtype=np.int32),
            attrs=np.arange(len(rows), dtype=np.int32),
            truncated=np.array([row.truncated for row in rows], np.bool_),
            kinds=list(kinds_),
            threads=list(threads),
            waits=[(row.wait, row.rendezvous) for row in rows],
            attributes=[row.attrs for row in rows],
        )

    def __len__(self) -> int:
        return len(self.id)

    def rows(self, places: Ints) -> Iterator[RecordedSpan]:
        """Yield the spans at these places."""
        columns = (self.id, self.parent, self.kind, self.start_ns, self.end_ns, self.truncated)
        others = (self.wait, self.attrs, self.thread, self.call, *(self.errors_ns or ()))
        rows = zip(*(column[places].tolist() for column in (*columns, *others)), strict=True)
        for id_, parent, kind, start_ns, end_ns, truncated, wait, attrs, thread, call, *errors_ns in rows:
            if errors_ns:
                start_ns, end_ns = map(Timestamp, (start_ns, end_ns), errors_ns)
            details, rendezvous = self.waits[wait]
            layer, name = self.kinds[kind]
            more = self.attributes[attrs], self.threads[thread], rendezvous, None if call == NONE else call
            yield RecordedSpan(id_, parent, layer, name, start_ns, end_ns, truncated, details, *more)

    def where(self, rows: Flags | Ints) -> RecordedSpans:
        """Return the spans with a flag, or of these rows."""
        columns = ("id", "parent", "start_ns", "end_ns", "call", "kind", "thread", "wait", "attrs", "truncated")
        errors_ns = self.errors_ns and (self.errors_ns[0][rows], self.errors_ns[1][rows])
        return replace(self, errors_ns=errors_ns, **{name: getattr(self, name)[rows] for name in columns})

    def named(self, *names: str) -> RecordedSpans:
        """Return the spans with one of these names."""
        rows = [self._rows_of_kinds[code] for code, (_, name) in enumerate(self.kinds) if name in names]
        return self.where(np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64))

    @cached_property
    def _rows_of_kinds(self) -> list[Ints]:
        order = np.argsort(self.kind, kind="stable")
        return np.split(order, np.searchsorted(self.kind[order], np.arange(1, len(self.kinds))))

    @cached_property
    def outer(self) -> Ints:
        """Row of the parent of each span, or NONE."""
        order = np.argsort(self.id, kind="stable")
        place = np.minimum(np.searchsorted(self.id[order], self.parent), max(0, len(self) - 1))
        found = (self.parent != 0) & (self.id[order][place] == self.parent) if len(self) else place
        return np.where(found, order[place], NONE) if len(self) else place

    @property
    def first_ended(self) -> RecordedSpan | None:
        """The span that ended first; None without a span."""
        return self[int(np.argmin(self.end_ns))] if len(self) else None

    @property
    def last_ended(self) -> RecordedSpan | None:
        """The span that ended last; None without a span."""
        return self[int(np.argmax(self.end_ns))] if len(self) else None

    def other_threads(self) -> Iterator[tuple[str, Flags]]:
        """Yield the name of each thread, except the main thread, with a flag for each of its spans."""
        for thread, code in sorted((self.threads[code], code) for code in np.unique(self.thread).tolist()):
            if thread:
                yield thread, self.thread == code

    def is_named(self, *names: str) -> Flags:
        """Return True for each span with one of these names."""
        return self.is_any(lambda layer, name: name in names)

    def of_kind(self, *wanted: SpanKind) -> RecordedSpans:
        """Return the spans of these kinds."""
        return self.where(self.is_kind(*wanted))

    def is_kind(self, *wanted: SpanKind) -> Flags:
        """Return True for each span of these kinds."""
        found = ((kind_of(*kind) or (None, ""))[0] for kind in self.kinds)
        flags: Flags = np.array([any(kind is one for one in wanted) for kind in found], np.bool_)[self.kind]
        return flags

    def is_any(self, wanted: Callable[[str, str], bool]) -> Flags:
        """Return True for each span with a wanted layer and name."""
        flags: Flags = np.array([wanted(*kind) for kind in self.kinds], np.bool_)[self.kind]
        return flags

    @property
    def in_main_thread(self) -> Flags:
        """True for spans of the main thread."""
        flags: Flags = np.array([not thread for thread in self.threads], np.bool_)[self.thread]
        return flags

    @property
    def ns(self) -> Ints:
        """Durations."""
        return self.end_ns - self.start_ns

    @cached_property
    def is_step(self) -> Flags:
        """True for whole training steps, the first step included."""
        inside = np.array([rendezvous in ("", kinds.STEP_RENDEZVOUS) for _, rendezvous in self.waits], np.bool_)
        flags: Flags = self.is_any(lambda layer, name: layer == TENSORFLOW) & (self.call != NONE) & inside[self.wait]
        return flags

    @property
    def mains(self) -> RecordedSpans:
        """Main functions of ranks, which record role and index of their node."""
        return self.where(self.has("role", "index"))

    def has(self, *names: str) -> Flags:
        """Return True for each span with all of these attributes."""
        return self.with_attrs(lambda attrs: {*names} <= attrs.keys())

    def equals(self, name: str, value: object) -> Flags:
        """Return True for each span whose attribute has this value."""
        return self.with_attrs(lambda attrs: bool(attrs.get(name) == value))

    def with_attrs(self, wanted: Callable[[JsonMap], bool]) -> Flags:
        """Return True for each span with wanted attributes."""
        flags: Flags = np.array([*map(wanted, self.attributes)], np.bool_)[self.attrs]
        return flags

    def values(self, name: str, default: int = 0) -> Ints:
        """Return an integer attribute of each span, limited to `MOST`: `default` without it, NONE for null."""
        values = (attrs.get(name, default) for attrs in self.attributes)
        return ints([NONE if value is None else value for value in values])[self.attrs]
