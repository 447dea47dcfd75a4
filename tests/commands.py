"""The commands of a page in their order, with the files that the page prints for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[1]
PAGES = ("README.md", "docs/quickstart.md")
"""Pages whose commands CI runs."""

ELSEWHERE = {"make test": "it runs these tests"}
"""Beginning of a command -> the reason why shard docs does not run it."""

DIR = "DIR"
"""The word of the pages for the HADOOP_CONF_DIR of a real cluster."""

_PIECES = re.compile(
    r"^```(?P<kind>\w*)\n(?P<block>.*?)^```|^ {4}(?P<line>\S[^\n]*)$|`(?P<name>[\w-]+\.(?:py|toml))`", re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A file that a page prints in full. Its name is the last one before it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A line for a shell, without its comment."""

    line: str

    @property
    def runs_elsewhere(self) -> bool:
        """True if shard docs does not run the command."""
        return self.line.startswith(tuple(ELSEWHERE))


def steps(page: str) -> Iterator[Printed | Command]:
    """Yields the files and commands of a page. A command is an indented line."""
    name = ""
    for piece in _PIECES.finditer((TOP / page).read_text()):
        if piece["name"]:
            name = piece["name"]
        elif piece["line"]:
            yield Command(re.sub(r"\s+#.*", "", piece["line"]))
        elif piece["kind"] != "text":  # output of a command
            assert name, f"{page} prints a file without a name: {piece['block'][:60]}"
            yield Printed(name, piece["block"])
            name = ""
