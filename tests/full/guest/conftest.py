"""The guest of these tests: booted once for the report, and again where a test ends it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.guest.fixtures import packages
from tests.guest.machine import Machine, run

__all__ = ["packages", "report"]

REPORT_LIMIT_S = 800.0
"""It takes two minutes on a machine with two busy cores; most of it are two runs of `dlobd doctor`."""

RUN_MEMORY_MB = 8192
"""Of which a run of the main job fits, so that doctor finds nothing broken but what is required."""


@pytest.fixture(scope="session")
def report(packages: None) -> dict[str, Any]:
    script = Path(__file__).with_name("report.py")
    ended = run([sys.executable, str(script)], Machine(RUN_MEMORY_MB), deadline_s=REPORT_LIMIT_S)
    assert ended.status == 0, ended.stderr.decode(errors="replace")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found
