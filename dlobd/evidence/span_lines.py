"""Decodes the span lines of a file into columns. Lines of ended spans are by far the most: msgspec checks their types.

`dlobd.bundle.reading` checks all other lines.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from dlobd.bundle import reading
from dlobd.bundle.reading import Damaged
from dlobd.columns import NONE, Codes, Ints, Numbers
from dlobd.evidence.recorded_spans import RecordedSpans, Wait
from dlobd.layers import LAYERS
from dlobd.spans import JsonMap

MAX_NS = 2**60
"""Largest valid time, 36 years: a monotonic clock counts from the boot of its machine."""

ENDED, MARKS = b'{"k":"s",', (b'{"k":"b",', b'{"k":"e",')
"""First bytes of lines of ended spans, and of begins and ends."""

NO_ATTRIBUTES = Raw(b"{}")

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class WaitLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Member `w` of a span line: fields of `Details`, and of a collective."""

    waits_for: list[str] | UnsetType = UNSET
    released_ns: Int | UnsetType | None = UNSET
    cause: str | UnsetType = UNSET
    cause_period_ns: Int | UnsetType = UNSET
    rendezvous: str = ""
    call: Annotated[int, Meta(ge=0, le=2**63 - 1)] = NONE


class BeginLine(msgspec.Struct, gc=False, tag_field="k", tag="b"):
    """Line of the begin of a span: ID, parent, layer, name, start, wait, attributes and thread."""

    i: Int
    p: Int
    l: str  # noqa: E741
    n: str
    t: Annotated[int, Meta(ge=-MAX_NS, le=MAX_NS)]
    w: WaitLine | UnsetType = UNSET
    a: Raw = NO_ATTRIBUTES
    th: str = ""


class SpanLine(BeginLine, tag="s", kw_only=True):
    """Line of an ended span, with its duration."""

    d: Annotated[int, Meta(ge=0, le=MAX_NS)]


class EndLine(msgspec.Struct, gc=False, tag_field="k", tag="e"):
    """Line of the end of a span: ID, time, and further attributes."""

    i: Int
    t: Annotated[int, Meta(ge=-MAX_NS, le=MAX_NS)]
    a: Raw = NO_ATTRIBUTES


_SPAN, _ANY = msgspec.json.Decoder(SpanLine), msgspec.json.Decoder(SpanLine | BeginLine | EndLine)


def decoded_line(text: bytes) -> SpanLine | BeginLine | EndLine | None:
    """Return a line of a span; None if it is damaged."""
    line: SpanLine | BeginLine | EndLine
    try:
        line = _ANY.decode(text)
    except (ValueError, RecursionError):
        # the decoder refuses half a surrogate pair, which the name of a file may have
        value = reading.parse_json(text.decode(errors="replace"), JsonMap, infinite=True)
        if isinstance(value, Damaged):
            return None
        attrs = json.dumps(value.pop("a", {}))
        try:
            line = msgspec.convert(value, SpanLine | BeginLine | EndLine)
        except ValueError:
            return None
        line.a = Raw(attrs.encode())
    return line


def joined(some: Raw, more: Raw) -> Raw:
    """Return the attributes of the begin and the end of a span; those of the end have precedence."""
    parts = [members for raw in (some, more) if (members := bytes(raw)[1:-1].strip())]
    return Raw(b"{" + b",".join(parts) + b"}")


@dataclass
class SpanLines:
    """Spans of a file, while it is read. `attributes`: shape of the attributes."""

    attributes: Any
    _kinds: Numbers[tuple[str, str]] = field(default_factory=Numbers)
    _threads: Numbers[str] = field(default_factory=Numbers)
    _waits: Numbers[tuple[Any, ...]] = field(default_factory=lambda: Numbers({(): 0}))
    _attrs: Numbers[bytes] = field(default_factory=lambda: Numbers({bytes(NO_ATTRIBUTES): 0}))
    _blocks: list[tuple[list[Ints], list[Codes]]] = field(default_factory=list)
    last_ns: int = 0  # end of the last span

    def decode(self, lines: Sequence[bytes], numbers: Sequence[int]) -> list[int]:
        """Add lines of ended spans, with their numbers in the file; return the numbers of damaged lines."""
        try:
            self.add(_SPAN.decode_lines(b"\n".join(lines)), numbers)
        except (ValueError, RecursionError):  # one of them
            found = {number: decoded_line(text) for text, number in zip(lines, numbers, strict=True)}
            valid = {number: line for number, line in found.items() if isinstance(line, SpanLine)}
            self.add([*valid.values()], [*valid])
            return [number for number in found if number not in valid]
        return []

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
            [0 if line.w is UNSET else waits[_key(line.w)] for line in lines],
            [0 if line.a is NO_ATTRIBUTES else attrs[bytes(line.a)] for line in lines],
        ]
        self.last_ns = max(self.last_ns, max(integers[3], default=0))
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
        parsed = [self._parsed(raw) for raw in self._attrs]
        valid = np.array([layer in LAYERS for layer, _ in self._kinds], np.bool_)[kind] & (end_ns < MAX_NS)
        valid &= ~np.array([isinstance(one, Damaged) for one in parsed], np.bool_)[attrs]
        order = np.lexsort((number, id_))
        again = order[1:][id_[order[1:]] == id_[order[:-1]]]
        valid[again] = False
        rows = np.argsort(number, kind="stable")
        rows = rows[valid[rows]]
        columns = id_, parent, start_ns, end_ns, call, kind, thread, wait, attrs
        found = RecordedSpans(
            *columns,
            truncated=np.isin(number, np.array(open_, np.int64)),
            kinds=list(self._kinds),
            threads=list(self._threads),
            waits=[_wait(key) for key in self._waits],
            attributes=[{} if isinstance(one, Damaged) else one for one in parsed],
        )
        return found.where(rows), number[~valid].tolist()

    def _parsed(self, raw: bytes) -> Any:
        try:
            value = msgspec.json.decode(raw)
            msgspec.convert(value, self.attributes)
        except (ValueError, RecursionError):  # damaged, or the infinite loss of a training that diverges
            return reading.parse_json(raw, self.attributes, infinite=True)
        return value


def _key(wait: WaitLine) -> tuple[Any, ...]:
    lanes = wait.waits_for
    return UNSET if lanes is UNSET else (*lanes,), wait.released_ns, wait.cause, wait.cause_period_ns, wait.rendezvous


def _wait(key: tuple[Any, ...]) -> Wait:
    if not key:
        return {}, ""
    names = ("waits_for", "released_ns", "cause", "cause_period_ns")
    details: Any = {name: value for name, value in zip(names, key, strict=False) if value is not UNSET}
    return details, key[-1]
