"""A package of another author, with entry points."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path


def install(top: Path, entry_points: str, module: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_package"]:
        del sys.modules[name]
    (top / "their_package").mkdir()
    (top / "their_package" / "__init__.py").write_text("")
    (top / "their_package" / "net.py").write_text(module)
    info = top / "their_package-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))
