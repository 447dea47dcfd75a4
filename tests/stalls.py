"""A captured run in which everything stood still for a while: the same evidence, with each of its times after a moment
so much later, and each interval that the moment lies in so much longer. Whoever was at work then gets the time.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dlobd.attribution.importers.log4j import LogLine, read

_LOG = re.compile(r"^(\d{6,}) (\d{4}-\S+)", re.MULTILINE)
_JVM = re.compile(r"^\[(\d+)ns\]", re.MULTILINE)
_TRACED = re.compile(r"^(\d{6,})( \d{4}-.*duration\(ns\): )(\d+)", re.MULTILINE)


def stalled(source: Path, directory: Path, at_ns: int, by_ns: int, but: Collection[Path] = ()) -> Path:
    """A copy of the bundle `source` below `directory` that stood still at `at_ns` for `by_ns`.

    Args:
        but: files of processes that went on, relative to the bundle.
    """
    bundle = directory / f"{source.name}-{at_ns}"
    shutil.copytree(source, bundle)

    def later(ns: int) -> int:
        return ns + by_ns if ns >= at_ns else ns

    still = [path for path in bundle.rglob("*") if path.relative_to(bundle) not in but]
    for path in [path for path in still if path.suffix == ".log" or path.name.endswith("stderr")]:
        text = path.read_text()
        text = _TRACED.sub(lambda m: f"{m[1]}{m[2]}{_longer(int(m[1]) - int(m[3]), int(m[3]), later)}", text)
        text = _LOG.sub(lambda m: _stamp(int(m[1]), m[2], later), text)
        path.write_text(_JVM.sub(lambda m: f"[{later(int(m[1]))}ns]", text))
    for path in [path for path in still if path.name.startswith("spans-")]:
        lines = [_line(json.loads(line), later) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    window = bundle / "evidence" / "window.json"
    values = json.loads(window.read_text())
    values |= {key: later(values[key]) for key in ("exec_ns", "started_ns", "exit_ns")}
    window.write_text(json.dumps(values))
    return bundle


def _stamp(at_ns: int, date: str, later: Callable[[int], int]) -> str:
    """Monotonic time and date of a line: the wall clock went on too."""
    moved_ns = later(at_ns)
    moved = datetime.fromisoformat(date) + timedelta(microseconds=(moved_ns - at_ns) / 1000)
    return f"{moved_ns} {moved.isoformat(timespec='milliseconds')}"


def _longer(start_ns: int, length_ns: int, later: Callable[[int], int]) -> int:
    return later(start_ns + length_ns) - later(start_ns)


def _line(line: dict[str, Any], later: Callable[[int], int]) -> dict[str, Any]:
    """A span's line; anchors stay: monotonic and wall clock go on in a stall."""
    if line["k"] == "s":
        line["d"] = _longer(line["t"], line["d"], later)
    for key in ("t", "opened_ns", "start_ns"):
        if line["k"] != "anchor" and isinstance(line.get(key), int):
            line[key] = later(line[key])
    return line


def said(bundle: Path, log: str, *words: str) -> LogLine:
    """The first line of a log that has all these words."""
    return next(line for line in read(bundle / "logs" / log) if all(word in line.message for word in words))
