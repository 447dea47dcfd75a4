"""The container entry point as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dlobd.errors import SetupError

SCRIPT = Path(__file__).parents[2] / "docker" / "entrypoint.py"


SAID = {"WORKERS": "3", "MASTER_MEMORY_MB": "1500", "WORKER_MEMORY_MB": "4000", "EDGE_MEMORY_MB": "2500"}


"""16000 MB in all."""


def test_it_ends_with_one_line_and_the_exit_code_of_dlobd() -> None:
    """As Docker runs it, so that `docker compose up` shows why nothing came up."""
    environment = {**SAID, "WORKERS": "1000000"}
    done = subprocess.run(
        [sys.executable, SCRIPT, "check"], env=environment, capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("dlobd: The containers may use 4000004000 MB of memory")
    assert (done.returncode, done.stdout) == (SetupError.exit_code, "")
