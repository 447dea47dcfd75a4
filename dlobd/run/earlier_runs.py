"""Walls of earlier runs of the same experiment on the same machine, from the bundles beside a new one.

They show the variation between runs. A loop of milliseconds does not: a run has JVMs, a disk and waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dlobd.bundle.store import RUN_ID, Bundle
from dlobd.run.provenance import MACHINE

MAX_BUNDLES = 50
"""Largest number of bundles to read. 50 take about 30 ms."""


def walls_ns(bundle: Bundle, record: Mapping[str, Any]) -> list[int]:
    """Returns the walls of the latest successful runs, oldest first. Damaged records are skipped.

    Args:
        record: the record of the new run; experiment key and machine must be equal.
    """
    wanted = _identity(record)
    beside = sorted(path for path in bundle.path.parent.glob("*/run.json") if RUN_ID.fullmatch(path.parent.name))
    walls = []
    for path in [path for path in beside if path.parent != bundle.path][-MAX_BUNDLES:]:
        try:
            other = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(other, dict) and other.get("status") == "ok" and _identity(other) == wanted:
            wall_ns = other.get("wall_ns")
            if isinstance(wall_ns, int) and wall_ns:
                walls.append(wall_ns)
    return walls


def _identity(record: Mapping[str, Any]) -> tuple[Any, ...]:
    platform = record.get("platform")
    known = platform if isinstance(platform, dict) else {}
    return record.get("experiment_key"), *(known.get(name) for name in MACHINE)
