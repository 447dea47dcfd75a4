"""A JVM's own log (`-Xlog:...:timenanos`): when the JVM started, when it exited, and how long it collected garbage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_STAMP = re.compile(r"^\[(\d+)ns\]")
_PAUSE = re.compile(r"Pause .* (\d+[.,]\d+)ms$")


@dataclass(frozen=True, slots=True)
class JvmLife:
    """`exit_ns` is None when the JVM was killed, or when its log has no exit record."""

    start_ns: int
    exit_ns: int | None
    gc_pause_ns: int


def stamps(path: Path) -> list[int]:
    """The monotonic stamps of a JVM's own log, in the order of the file; none where it is absent."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [int(stamp[1]) for stamp in map(_STAMP.match, lines) if stamp]


def read(path: Path) -> JvmLife | None:
    """The life of the JVM that wrote `path`; None where there is no such record."""
    if not path.exists():
        return None
    start = end = None
    pauses = 0
    for line in path.read_text(errors="replace").splitlines():
        stamp = _STAMP.match(line)
        if not stamp:
            continue
        at_ns = int(stamp[1])
        start = at_ns if start is None else start
        if "gc,heap,exit" in line:
            end = at_ns
        pause = _PAUSE.search(line)
        if pause:
            pauses += round(float(pause[1].replace(",", ".")) * 1e6)
    return None if start is None else JvmLife(start, end, pauses)
