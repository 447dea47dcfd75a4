"""Reads a JVM's own log (`-Xlog:...:timenanos`): start, exit and garbage collections."""

import re
from dataclasses import dataclass
from pathlib import Path

from dlobd.bundle import reading

_STAMP = re.compile(r"^\[(\d{1,19})ns\]")
_PAUSE = re.compile(r"Pause .* (\d{1,12}[.,]\d{1,12})ms$")
_CREATED = re.compile(r"Create VM, (\d{1,9}[.,]\d{1,12}) secs$")


@dataclass(frozen=True, slots=True)
class JvmLife:
    """Start, exit and garbage collections of a JVM."""

    start_ns: int
    exit_ns: int | None  # None if the JVM was killed, or if its log has no exit record
    gc_pause_ns: int
    created_ns: int | None = None  # time at which it could load the main class
    pauses: tuple[tuple[int, int], ...] = ()  # collections that stopped all threads


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
        if pause := _PAUSE.search(line):
            pauses.append((at_ns - round(float(pause[1].replace(",", ".")) * 1e6), at_ns))
    if start is None:
        return None
    pause_ns = sum(until - begin for begin, until in pauses)
    return JvmLife(start, end, pause_ns, created, tuple(pauses))
