"""Python files that a page of docs/ prints, for tests that run them as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def printed(page: str, name: str, directory: Path) -> Path:
    """The first Python block behind the name of the file, written to `directory` under that name."""
    text = (DOCS / page).read_text().partition(f"`{name}`")[2]
    found = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} prints no {name}"
    path = directory / name
    path.write_text(found[1])
    return path
