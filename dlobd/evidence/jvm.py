"""A JVM's own log (`-Xlog:...:timenanos`): when the JVM started, when it exited, and how long it collected garbage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dlobd.bundle import reading

_STAMP = re.compile(r"^\[(\d{1,19})ns\]")
_COLLECTION = re.compile(r"\] GC\((\d{1,18})\) (.*)")
_USING = re.compile(r"\] Using (\w+)")
_PAUSE = re.compile(r"Pause .* (\d{1,12}[.,]\d{1,12})ms$")
_CREATED = re.compile(r"Create VM, (\d{1,9}[.,]\d{1,12}) secs$")


@dataclass(frozen=True, slots=True)
class JvmLife:
    """The life of a JVM.

    Attributes:
        exit_ns: None if the JVM was killed, or if its log has no exit record.
        created_ns: the time at which it was ready to load the main class; None if its log lacks it.
        pauses: begin and end of each collection that stopped all threads.
        collector: of garbage, such as G1; empty if its log lacks it.
    """

    start_ns: int
    exit_ns: int | None
    gc_pause_ns: int
    created_ns: int | None = None
    pauses: tuple[tuple[int, int], ...] = ()
    collector: str = ""


def stamps(path: Path) -> list[int]:
    """Return the monotonic timestamps of a JVM's own log, in the order of the file; none without the file."""
    return [int(stamp[1]) for stamp in map(_STAMP.match, reading.lines(path)) if stamp]


def collector(path: Path) -> str:
    """Return the garbage collector of the JVM that wrote `path`, such as G1; empty if its log lacks it."""
    using = _USING.search(reading.text(path))
    return using[1] if using else ""


def collections(path: Path) -> dict[int, str]:
    """Map the number of each collection of a JVM to its first line in the log."""
    found: dict[int, str] = {}
    for number, what in _COLLECTION.findall(reading.text(path)):
        found.setdefault(int(number), what)
    return found


def read(path: Path) -> JvmLife | None:
    """Return the life of the JVM that wrote `path`; None without a timestamp."""
    start = end = created = None
    pauses: list[tuple[int, int]] = []
    for line in reading.lines(path):
        stamp = _STAMP.match(line)
        if not stamp:
            continue
        at_ns = int(stamp[1])
        start = at_ns if start is None else start
        if "gc,heap,exit" in line:
            end = at_ns
        if length := _CREATED.search(line):
            start, created = at_ns - round(float(length[1].replace(",", ".")) * 1e9), at_ns
        pause = _PAUSE.search(line)
        if pause:
            pauses.append((at_ns - round(float(pause[1].replace(",", ".")) * 1e6), at_ns))
    if start is None:
        return None
    pause_ns = sum(until - begin for begin, until in pauses)
    return JvmLife(start, end, pause_ns, created, tuple(pauses), collector(path))
