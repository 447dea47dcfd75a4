"""Texts of a stored run as forms: their timestamps and names are fields, to be filled in for copies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

DIGITS = {13: 10**6, 14: 1, 19: 1}
"""Digits of a timestamp, and its unit in ns: wall clock in ms, monotonic clock in ns, wall clock in ns."""

_STAMP = r"(?P<number>(?<![\d.])(?:\d{19}|\d{13,14})(?!\d))|(?P<date>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Clock:
    """The window of a stored run on the monotonic clock; `ahead_ns` is the wall clock minus it. Numbers and dates in
    the window are timestamps."""

    since_ns: int
    until_ns: int
    ahead_ns: int

    def number_ns(self, text: str) -> int | None:
        """Return the monotonic time of a number; None if it is no timestamp of the run."""
        at_ns = int(text) * DIGITS[len(text)] - (0 if len(text) == 14 else self.ahead_ns)
        return at_ns if self.since_ns < at_ns < self.until_ns else None

    def date_ns(self, text: str) -> int | None:
        """Return the monotonic time of a date, to a millisecond; None if it is not in the run."""
        since = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
        at_ns = since // _MICROSECOND * 1000 - self.ahead_ns
        return at_ns if self.since_ns < at_ns < self.until_ns else None


class Stamp(NamedTuple):
    """Timestamp in a form: its time, and its text as a number of `digits`, or as a date if `digits` is 0."""

    at_ns: int
    digits: int

    def text(self, at_ns: int, ahead_ns: int) -> str:
        """Return the text of another time."""
        if self.digits == 14:
            return str(at_ns)
        if self.digits:
            return str((at_ns + ahead_ns) // DIGITS[self.digits])
        return (_EPOCH + timedelta(microseconds=(at_ns + ahead_ns) // 1000)).isoformat(timespec="milliseconds")[:23]


@dataclass(frozen=True)
class Names:
    """The names of one executor and its task in the texts of a run: name -> pattern of its text."""

    patterns: Mapping[str, str]

    def form(self, text: str, clock: Clock) -> Form:
        """Return a text as a form with these names."""
        named = (f"(?P<{name}>{pattern})" for name, pattern in self.patterns.items())
        parts: list[str] = []
        fields: list[Stamp | str] = []
        end = 0
        for match in re.finditer("|".join([*named, _STAMP]), text, re.MULTILINE):
            field: Stamp | str | None = match.lastgroup
            if field in ("number", "date"):
                at_ns = clock.number_ns(match[0]) if field == "number" else clock.date_ns(match[0])
                field = None if at_ns is None else Stamp(at_ns, len(match[0]) if field == "number" else 0)
            if field is not None:
                parts += [text[end : match.start()].replace("%", "%%"), "%s"]
                fields.append(field)
                end = match.end()
        return Form("".join([*parts, text[end:].replace("%", "%%")]), tuple(fields), clock)


@dataclass(frozen=True)
class Form:
    """A text with fields."""

    text: str
    fields: tuple[Stamp | str, ...]
    clock: Clock

    @property
    def at_ns(self) -> int:
        """The first timestamp; 0 without one."""
        return next((field.at_ns for field in self.fields if isinstance(field, Stamp)), 0)

    def filled(self, names: Mapping[str, object], by_ns: int = 0, pause_ns: int = 0, after_ns: int = 0) -> str:
        """Return the text with other names, and timestamps later by `by_ns`; after `after_ns` also by `pause_ns`."""
        ahead_ns = self.clock.ahead_ns
        return self.text % tuple(
            names[field]
            if isinstance(field, str)
            else field.text(field.at_ns + by_ns + (pause_ns if field.at_ns > after_ns else 0), ahead_ns)
            for field in self.fields
        )
