"""The scripts of analysis/, run as a person runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]


def script(name: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script of analysis/."""
    command = [sys.executable, str(TOP / "analysis" / name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=150, cwd=cwd)
