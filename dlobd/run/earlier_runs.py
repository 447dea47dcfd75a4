"""How long earlier runs of the same experiment took on the same machine, from the bundles beside a new one.

That is how much runs differ here. A loop of milliseconds cannot stand for it: a run has JVMs, a disk and waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dlobd.bundle.store import RUN_ID, Bundle
from dlobd.run.provenance import MACHINE

LOOKED_AT = 50
"""Of the bundles beside a run; reading that many takes some 30 ms."""


def walls_ns(bundle: Bundle, record: Mapping[str, Any]) -> list[int]:
    """Walls of the latest runs that are ok, oldest first; a record that cannot be read is passed over.

    Args:
        record: of the new run, whose bundle this is; experiment key and platform count.
    """
    wanted = _which(record)
    beside = sorted(path for path in bundle.path.parent.glob("*/run.json") if RUN_ID.fullmatch(path.parent.name))
    found = []
    for path in [path for path in beside if path.parent != bundle.path][-LOOKED_AT:]:
        try:
            other = json.loads(path.read_bytes())
            if other["status"] == "ok" and other["wall_ns"] and _which(other) == wanted:
                found.append(int(other["wall_ns"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _which(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["experiment_key"], *(record["platform"].get(name) for name in MACHINE)
