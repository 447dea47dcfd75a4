"""Decodes the span lines of a file into columns. Lines of ended spans are by far the most: msgspec checks their types.

Each line that it refuses is checked again by `dlobd.bundle.reading`, as all other lines are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from dlobd.bundle import reading
from dlobd.bundle.reading import Damaged
from dlobd.columns import NONE, Codes, Flags, Ints, Numbers
from dlobd.evidence.recorded_spans import RecordedSpans, Wait
from dlobd.layers import LAYERS

MAX_NS = 2**60
"""Largest valid time, 36 years: a monotonic clock counts from the boot of its machine."""

BEGIN = b'{"k":"s",'
"""Begin of a line of an ended span."""

_Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class WaitLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Member `w` of a span line: fields of `Details`, and of a collective."""

    waits_for: list[str] | UnsetType = UNSET
    released_ns: _Int | UnsetType | None = UNSET
    cause: str | UnsetType = UNSET
    cause_period_ns: _Int | UnsetType = UNSET
    rendezvous: str = ""
    call: Annotated[int, Meta(ge=0, le=2**63 - 1)] = NONE


class SpanLine(msgspec.Struct, gc=False, tag_field="k", tag="s"):
    """Line of an ended span: ID, parent, layer, name, start, duration, wait, attributes and thread."""

    i: _Int
    p: _Int
    l: str  # noqa: E741
    n: str
    t: Annotated[int, Meta(ge=-MAX_NS, le=MAX_NS)]
    d: Annotated[int, Meta(ge=0, le=MAX_NS)]
    w: WaitLine | UnsetType = UNSET
    a: Raw = Raw(b"{}")
    th: str = ""


_DECODER = msgspec.json.Decoder(SpanLine)


@dataclass
class SpanLines:
    """Spans of a file, while it is read. `attributes`: shape of the attributes."""

    attributes: Any
    _kinds: Numbers[tuple[str, str]] = field(default_factory=Numbers)
    _threads: Numbers[str] = field(default_factory=Numbers)
    _waits: Numbers[tuple[Any, ...]] = field(default_factory=Numbers)
    _attrs: Numbers[bytes] = field(default_factory=Numbers)
    _blocks: list[tuple[list[Ints], list[Codes]]] = field(default_factory=list)
    last_ns: int = 0  # end of the last span

    def decode(self, lines: Sequence[bytes], numbers: Sequence[int]) -> list[int]:
        """Add lines of ended spans, with their numbers in the file; return the places of lines that are refused."""
        refused: list[int] = []
        try:
            found = _DECODER.decode_lines(b"\n".join(lines))
        except (ValueError, RecursionError):  # one of them
            found = []
            for place, line in enumerate(lines):
                try:
                    found.append(_DECODER.decode(line))
                except (ValueError, RecursionError):
                    refused.append(place)
            numbers = np.delete(numbers, refused).tolist()
        self.add(found, numbers)
        return refused

    def add(self, lines: Sequence[SpanLine], numbers: Sequence[int]) -> None:
        """Add spans, with the numbers of their lines."""
        kinds, threads, waits, attrs = self._kinds, self._threads, self._waits, self._attrs
        integers = [
            [line.i for line in lines],
            [line.p for line in lines],
            [line.t for line in lines],
            [line.t + line.d for line in lines],
            [NONE if line.w is UNSET else line.w.call for line in lines],
            numbers,
        ]
        codes = [
            [kinds[line.l, line.n] for line in lines],
            [threads[line.th] for line in lines],
            [waits[() if line.w is UNSET else _key(line.w)] for line in lines],
            [attrs[bytes(line.a)] for line in lines],
        ]
        self.last_ns = max(self.last_ns, *integers[3], 0)
        self._blocks.append(([np.array(c, np.int64) for c in integers], [np.array(c, np.int32) for c in codes]))

    def columns(self, open_: Sequence[int]) -> tuple[RecordedSpans, list[int]]:
        """Return the valid spans in the order of the file, and the numbers of the lines of the others.

        Args:
            open_: numbers of the lines of spans without an end.
        """
        self.add([], [])
        integers, codes = zip(*self._blocks, strict=True)
        id_, parent, start_ns, end_ns, call, number = (np.concatenate(column) for column in zip(*integers, strict=True))
        kind, thread, wait, attrs = (np.concatenate(column) for column in zip(*codes, strict=True))
        parsed: list[Any] = [reading.parse_json(raw, self.attributes) for raw in self._attrs]
        valid = _flags([layer in LAYERS for layer, _ in self._kinds])[kind] & (end_ns < MAX_NS)
        valid &= ~_flags([isinstance(one, Damaged) for one in parsed])[attrs]
        order = np.lexsort((number, id_))
        again = order[1:][id_[order[1:]] == id_[order[:-1]]]
        valid[again] = False
        rows = np.argsort(number, kind="stable")
        rows = rows[valid[rows]]
        found = RecordedSpans(
            id=id_,
            parent=parent,
            start_ns=start_ns,
            end_ns=end_ns,
            call=call,
            kind=kind,
            thread=thread,
            wait=wait,
            attrs=attrs,
            truncated=np.isin(number, np.array(open_, np.int64)),
            kinds=list(self._kinds),
            threads=list(self._threads),
            waits=[_wait(key) for key in self._waits],
            attributes=[{} if isinstance(one, Damaged) else one for one in parsed],
        )
        return found.where(rows), number[~valid].tolist()


def _key(wait: WaitLine) -> tuple[Any, ...]:
    lanes = wait.waits_for
    return UNSET if lanes is UNSET else (*lanes,), wait.released_ns, wait.cause, wait.cause_period_ns, wait.rendezvous


def _wait(key: tuple[Any, ...]) -> Wait:
    if not key:
        return {}, ""
    names = ("waits_for", "released_ns", "cause", "cause_period_ns")
    details: Any = {name: value for name, value in zip(names, key, strict=False) if value is not UNSET}
    return details, key[-1]


def _flags(values: list[bool]) -> Flags:
    return np.array(values, np.bool_)
