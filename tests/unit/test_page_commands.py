"""The commands and files of README and quickstart that shard `docs` runs: their order, and what they need."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import DIR, PAGES, Command, Printed, steps

PAGE = """# A page

Write `a.py` or this `b.toml`:

```toml
name = "b"
```

Then run it, and `b.toml` again:

    make run     # takes a minute

1. A list
   continues.

    dlobd run b.toml --set x=1
"""


def test_commands_and_files_come_in_the_order_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    first = Printed("b.toml", 'name = "b"\n')
    assert [*steps(str(page))] == [first, Command("make run"), Command("dlobd run b.toml --set x=1")]
    page.write_text("No name.\n\n```\ntext\n```\n")
    with pytest.raises(AssertionError, match="a file without a name"):
        list(steps(str(page)))


def commands(page: str) -> list[str]:
    return [step.line for step in steps(page) if isinstance(step, Command) and not step.runs_elsewhere]


def test_each_page_has_commands_that_run_here() -> None:
    assert commands("README.md")[0] == "make run"
    lines = commands("docs/quickstart.md")
    assert len(lines) > 20
    assert lines[:2] == ["make run", ". .venv/bin/activate"]


@pytest.mark.parametrize("page", PAGES)
def test_a_command_needs_no_other_file_than_those_printed_before_it(page: str) -> None:
    there: set[str] = set()
    for step in steps(page):
        if isinstance(step, Printed):
            there.add(step.name)
        else:
            needed = set(re.findall(r"(?<![\w/])[\w-]+\.(?:py|toml)\b", step.line))
            assert needed <= there, step.line


@pytest.mark.parametrize("page", PAGES)
def test_a_command_has_no_placeholder_but_the_directory_of_a_cluster(page: str) -> None:
    for line in commands(page):
        words = shlex.split(line)
        assert words[0] in ("make", "dlobd", "."), line
        assert {word for word in words if word.isupper()} <= {DIR}, line
