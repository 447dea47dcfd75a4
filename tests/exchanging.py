"""The captured native run, as if its two ranks had exchanged outside of the compiled step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.captured import copy_of

BEGIN_NS = 30_481_000_000_000  # within the recorded time of both ranks


def wire(number: int, call: int, ns: int, transfers: Sequence[Any], kind: str = "s") -> dict[str, Any]:
    """Return the line of a span `wire`; of kind `b`, it has no end."""
    attrs: dict[str, Any] = {"bytes": 1000, "call": call, "transfers": transfers}
    begin = {"k": kind, "i": 10_000 + number, "p": 0, "l": "channel", "n": "wire", "t": BEGIN_NS + 10**7 * number}
    return begin | ({"d": ns} if kind == "s" else {}) | {"a": attrs}


def exchanged(directory: Path, lines: Sequence[Sequence[dict[str, Any]]], **configuration: Any) -> Path:
    """Copy the run, with lines added to the spans of each rank, and with another configuration."""
    path = copy_of("native-run", directory)
    run = json.loads((path / "run.json").read_text())
    run["configuration"] |= configuration
    (path / "run.json").write_text(json.dumps(run))
    for rank, added in enumerate(lines):
        (spans,) = (path / "spans" / f"rank-{rank}").iterdir()
        with spans.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in added)
    return path


def ring(directory: Path, **configuration: Any) -> Path:
    """Copy the run with three exchanges of a ring in two buffers, of 3, 9 and 4 ms at the slower rank, and with one
    exchange that only rank 0 recorded."""
    carried = [[0, 1, 600, 0], [1, 0, 604, 0], [0, 1, 80, 1], [1, 0, 80, 1]]
    ranks = [[(2, 0), (9, 1), (4, 2), (1, 3)], [(3, 0), (5, 1), (2, 2)]]
    lines = [[wire(call, call, ms * 10**6, carried) for ms, call in calls] for calls in ranks]
    return exchanged(directory, lines, **({"exchange": "ring"} | configuration))
