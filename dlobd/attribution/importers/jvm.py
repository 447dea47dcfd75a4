"""A JVM's own log (`-Xlog:...:timenanos`): when the JVM started, when it exited, and how long it collected garbage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_STAMP = re.compile(r"^\[(\d+)ns\]")
_COLLECTION = re.compile(r"\] GC\((\d+)\) (.*)")
_USING = re.compile(r"\] Using (\w+)")
_PAUSE = re.compile(r"Pause .* (\d+[.,]\d+)ms$")
_CREATED = re.compile(r"Create VM, (\d+[.,]\d+) secs$")


@dataclass(frozen=True, slots=True)
class JvmLife:
    """`exit_ns` is None when the JVM was killed, or when its log has no exit record; `created_ns`, when it was ready to
    load the main class, where its log does not say so."""

    start_ns: int
    exit_ns: int | None
    gc_pause_ns: int
    created_ns: int | None = None
    pauses: tuple[tuple[int, int], ...] = ()  # begin and end of each collection for which all threads stood still
    collector: str = ""  # of its garbage: G1, Parallel; empty where its log does not say so


def stamps(path: Path) -> list[int]:
    """The monotonic stamps of a JVM's own log, in the order of the file; none where it is absent."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [int(stamp[1]) for stamp in map(_STAMP.match, lines) if stamp]


def collector(path: Path) -> str:
    """What collects the garbage of the JVM that wrote `path`: G1, Parallel; empty where its log does not say so."""
    using = _USING.search(path.read_text(errors="replace")) if path.exists() else None
    return using[1] if using else ""


def collections(path: Path) -> dict[int, str]:
    """The number of each collection of a JVM to the first that its own log says of it."""
    found: dict[int, str] = {}
    for number, what in _COLLECTION.findall(path.read_text(errors="replace") if path.exists() else ""):
        found.setdefault(int(number), what)
    return found


def read(path: Path) -> JvmLife | None:
    """The life of the JVM that wrote `path`; None where there is no such record."""
    if not path.exists():
        return None
    start = end = created = None
    pauses: list[tuple[int, int]] = []
    for line in path.read_text(errors="replace").splitlines():
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
