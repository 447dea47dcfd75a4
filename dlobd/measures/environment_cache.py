"""Computes the fraction of a run's environment that was in the page cache at its start. Pure.

A job reads its files through the page cache. So it needs the bytes that are in the page cache after the job, for
TensorFlow's libraries less than half. The result is the fraction of these bytes that were in the page cache before the
job.
"""

from collections.abc import Mapping

from dlobd.evidence.facts import BeforeAndAfter, Resident
from dlobd.record.resources import EnvironmentCache, EnvironmentPart, cache_state

TENSORFLOW = "TensorFlow"
"""Part of an environment with TensorFlow's libraries."""

USED_BYTES = 16 << 20
"""A part with fewer bytes in memory after the job was not used."""


def environment_cache(evidence: Mapping[str, BeforeAndAfter] | None) -> EnvironmentCache | None:
    """Return the member `environment_cache` of run.json; None without readings."""
    if not evidence:
        return None
    parts = tuple(_part(name, sizes["before"], sizes["after"]) for name, sizes in evidence.items())
    used = [part.state for part in parts if part.state is not None]
    return EnvironmentCache(min(used, key=("cold", "partly", "warm").index, default=None), parts)


def not_warm(cache: EnvironmentCache) -> list[EnvironmentPart]:
    """Return the used parts that were not in memory at the start."""
    return [part for part in cache.parts if part.state in ("cold", "partly")]


def in_memory(part: EnvironmentPart) -> str:
    """Return the bytes before and after the job: 200 of 300 MB."""
    return f"{(part.before_bytes or 0) / 1e6:.0f} of {(part.after_bytes or 0) / 1e6:.0f} MB"


def warnings(cache: EnvironmentCache | None) -> list[str]:
    """Return a warning if the start was not warm."""
    if cache is None or cache.state in (None, "warm"):
        return []
    state = "cold" if cache.state == "cold" else "partly cold"
    parts = ", ".join(f"{in_memory(part)} of {part.part}" for part in not_warm(cache))
    return [f"{state} start: {parts} were in the page cache"]


def _part(name: str, before: Resident | None, after: Resident | None) -> EnvironmentPart:
    if before is None or after is None:
        return EnvironmentPart(name, None, None, None, None)
    needed = after["resident_bytes"]
    there = min(before["resident_bytes"], needed)  # a kernel short of memory may have evicted some during the job
    state = None if needed < USED_BYTES else cache_state(there / needed)
    return EnvironmentPart(name, state, after["total_bytes"], before["resident_bytes"], needed)
