"""What mutations are made of: edits of a bundle's files that fail where there is nothing to edit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

Edit = Callable[[Path], None]


def replaced(name: str, pattern: str, instead: str | Callable[[re.Match[str]], str], count: int = 1) -> Edit:
    """Replaces what a pattern finds in files of a name.

    Args:
        name: a glob below the bundle; its files are gone through in order.
        pattern: `^` and `$` are the ends of a line.
        count: how many places are replaced in the first file that has any; 0 for all places of all files.
    """

    def edit(path: Path) -> None:
        changed = False
        for file in _files(path, name):
            old = file.read_text()
            new = re.sub(pattern, instead, old, count=count, flags=re.MULTILINE)
            if new != old:
                file.write_text(new)
                changed = True
                if count:
                    return
        if not changed:
            raise LookupError(f"{pattern} is not in {name}")

    return edit


def without_lines(name: str, pattern: str) -> Edit:
    """Removes every line in which a pattern is found, from all files of a name."""
    return replaced(name, rf"^.*(?:{pattern}).*\n", "", count=0)


def shifted(name: str, pattern: str, by_ns: int, count: int = 1) -> Edit:
    """Moves the `%nano` stamp at the begin of the lines in which a pattern is found; see `replaced` for `count`."""

    def moved(line: re.Match[str]) -> str:
        return f"{int(line[1]) + by_ns}{line[2]}"

    return replaced(name, rf"^(\d{{6,}})( .*(?:{pattern}))", moved, count)


def moved(name: str, pattern: str, by_ns: int) -> Edit:
    """Moves the lines in which a pattern is found by both their clocks, to where they belong in the log then."""

    def later(line: str) -> str:
        nano, wall, rest = line.split(" ", 2)
        time = datetime.fromisoformat(wall) + timedelta(microseconds=by_ns // 1000)
        return f"{int(nano) + by_ns} {time.isoformat(timespec='milliseconds')} {rest}"

    def edit(path: Path) -> None:
        file, at_ns = path / name, 0
        placed: list[tuple[int, str]] = []
        for line in file.read_text().splitlines(keepends=True):
            # a line without a stamp belongs to the one before it
            at_ns = int(stamp[1]) if (stamp := re.match(r"(\d{6,}) ", line)) else at_ns
            placed.append((at_ns + by_ns, later(line)) if re.search(pattern, line) else (at_ns, line))
        new = "".join(line for _, line in sorted(placed, key=lambda each: each[0]))
        if new == file.read_text():
            raise LookupError(f"{pattern} is not in {name}")
        file.write_text(new)

    return edit


def without(name: str) -> Edit:
    """Removes the files of a name."""

    def edit(path: Path) -> None:
        for file in _files(path, name):
            file.unlink()

    return edit


def changed(name: str, *keys: Any, by: Callable[[Any], Any]) -> Edit:
    """Changes one value of a JSON file, which lies below these keys."""

    def edit(path: Path) -> None:
        file = path / name
        whole = inner = json.loads(file.read_text())
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = by(inner[keys[-1]])
        file.write_text(json.dumps(whole))

    return edit


def marker(rank: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Edit:
    """Changes the done-marker of a rank."""
    return changed("evidence/markers.json", f"rank-{rank}.json", by=lambda text: json.dumps(change(json.loads(text))))


def both(*edits: Edit) -> Edit:
    """Makes several edits, one after the other."""

    def edit(path: Path) -> None:
        for each in edits:
            each(path)

    return edit


def _files(path: Path, name: str) -> Iterator[Path]:
    found = [file for file in sorted(path.glob(name)) if file.is_file()]
    if not found:
        raise LookupError(f"no file {name}")
    yield from found
