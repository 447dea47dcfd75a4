"""The studies and scripts of analysis/, run as a person runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]


def script(name: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of analysis/, or the study with its name."""
    path = TOP / "analysis" / name
    command = [sys.executable, *map(str, [path] if path.exists() else [path.parent, path.stem]), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=150, cwd=cwd)
