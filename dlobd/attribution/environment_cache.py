"""Whether a run began with its environment in memory, or had to read it from disk. Pure.

How much of a file a job needs is what the kernel had of it when the job had ended: a job reads the files through the
page cache, and of TensorFlow's libraries, for one, it never touches half. Of that, the part that was there before is
the share which the run began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlobd.record.resources import cache_state

USED_BYTES = 16 << 20
"""A part of which less is in memory at the end was not used."""


def environment_cache(evidence: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The member `environment_cache` of run.json; None where nobody looked."""
    if not evidence:
        return None
    parts = [_part(what, seen["before"], seen["after"]) for what, seen in evidence.items()]
    used = [part for part in parts if part["state"] is not None]
    order = ("cold", "partly", "warm")
    return {"state": min((part["state"] for part in used), key=order.index, default=None), "parts": parts}


def warnings(found: Mapping[str, Any] | None) -> list[str]:
    """That a run did not begin warm, and what it lacked."""
    if not found or found["state"] in (None, "warm"):
        return []
    lacked = [
        f"{part['part']} {part['before_bytes'] / 1e6:.0f} of {part['after_bytes'] / 1e6:.0f} MB"
        for part in found["parts"]
        if part["state"] in ("cold", "partly")
    ]
    return [f"a {found['state'].replace('partly', 'partly cold')} start: in memory was of {', '.join(lacked)}"]


def _part(what: str, before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> dict[str, Any]:
    if before is None or after is None:
        return {"part": what, "state": None, "total_bytes": None, "before_bytes": None, "after_bytes": None}
    needed = after["resident_bytes"]
    there = min(before["resident_bytes"], needed)  # a kernel short of memory may have dropped some since
    state = None if needed < USED_BYTES else cache_state(there / needed)
    return {
        "part": what,
        "state": state,
        "total_bytes": after["total_bytes"],
        "before_bytes": before["resident_bytes"],
        "after_bytes": needed,
    }
