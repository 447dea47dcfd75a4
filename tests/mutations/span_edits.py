"""Edits of span files: of the lines of named spans and instants, of processes, and of all times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.mutations.edits import Edit

Line = dict[str, Any]
Move = Callable[[int], int]
Change = Callable[[Line], Line | None]
"""What becomes of a line; None removes it."""


def of_spans(files: str, names: Iterable[str], change: Change) -> Edit:
    """Changes the begins and the ends of all spans of these names."""
    wanted = set(names)

    def edit(lines: list[Line]) -> list[Line | None]:
        ids = {line["i"] for line in lines if line.get("n") in wanted and "i" in line}
        return [change(line) if line.get("i") in ids else line for line in lines]

    return edited(files, edit)


def of_kind(files: str, kind: str, change: Change) -> Edit:
    """Changes all lines of a kind: process, anchor, b, e, i."""
    return edited(files, lambda lines: [change(line) if line["k"] == kind else line for line in lines])


def removed(files: str, *names: str) -> Edit:
    """Removes the spans of these names, and all that lie in them; the others are numbered anew."""

    def edit(lines: list[Line]) -> list[Line | None]:
        gone: set[int] = set()
        for line in lines:
            if "i" in line and (line.get("n") in names or line.get("p") in gone):
                gone.add(line["i"])

        return without_ids(lines, gone)

    return edited(files, edit)


def without_ids(lines: list[Line], gone: set[int]) -> list[Line | None]:
    """Lines without those of some spans; the others are numbered anew."""

    def numbered(line: Line) -> Line:
        return line | {key: line[key] - sum(i < line[key] for i in gone) for key in ("i", "p") if key in line}

    return [None if line.get("i") in gone else numbered(line) for line in lines]


def begun(files: str, name: str, by_ns: int) -> Edit:
    """Moves the begins of spans of a name."""
    return of_spans(files, [name], lambda line: line | {"t": line["t"] + by_ns} if line["k"] == "b" else line)


def ended(files: str, name: str, by_ns: int) -> Edit:
    """Moves the ends of spans of a name."""
    return of_spans(files, [name], lambda line: line | {"t": line["t"] + by_ns} if line["k"] == "e" else line)


def with_layer(files: str, layer: str, *names: str) -> Edit:
    """Gives spans of these names to a layer."""
    return of_spans(files, names, lambda line: line | {"l": layer} if line["k"] == "b" else line)


def with_wait(files: str, name: str, **members: Any) -> Edit:
    """Changes members of what spans of a name say of their wait; a member that becomes None is removed."""

    def change(line: Line) -> Line:
        if line["k"] != "b":
            return line
        wait = {key: value for key, value in (line.get("w", {}) | members).items() if value is not None}
        return {key: value for key, value in (line | {"w": wait}).items() if key != "w" or wait}

    return of_spans(files, [name], change)


def instant(files: str, name: str, by_ns: int) -> Edit:
    """Moves instants of a name."""
    return of_kind(files, "i", lambda line: line | {"t": line["t"] + by_ns} if line["n"] == name else line)


def times(files: str, move: Move) -> Edit:
    """Moves the times of all spans, instants and clock anchors."""

    def moved(line: Line) -> Line:
        return line | {key: move(line[key]) for key in ("t", "monotonic_ns") if key in line}

    return edited(files, lambda lines: [moved(line) for line in lines])


def edited(files: str, edit: Callable[[list[Line]], Iterable[Line | None]]) -> Edit:
    """Replaces the lines of span files, all lines of a file at once; a line that becomes None is removed."""

    def apply(path: Path) -> None:
        changed = False
        for file in sorted(path.glob(files)):
            old = [json.loads(text) for text in file.read_text().splitlines()]
            new = [line for line in edit(old) if line is not None]
            if new != old:
                file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in new))
                changed = True
        if not changed:
            raise LookupError(f"nothing to edit in {files}")

    return apply
