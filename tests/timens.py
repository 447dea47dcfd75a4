"""Processes whose monotonic clock is another one: a time namespace of their own, as root or in a user namespace."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

_WAYS = (("unshare", "--time"), ("unshare", "--user", "--map-root-user", "--time"))


@cache
def _way() -> tuple[tuple[str, ...], str]:
    said = "this kernel has no time namespaces"
    if not Path("/proc/self/ns/time").exists():
        return (), said
    for way in _WAYS:
        try:
            asked = [*way, "--monotonic", "7", "--fork", "readlink", "/proc/self/ns/time"]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=10)
        except FileNotFoundError:
            return (), "there is no unshare (util-linux)"
        if done.returncode == 0 and done.stdout.strip() != os.readlink("/proc/self/ns/time"):
            return way, ""
        said = done.stderr.strip()
    return (), said


def ahead(seconds: int) -> list[str]:
    """What to put before a command so that its monotonic clock is ahead of ours by `seconds`; skips where none may."""
    way, why = _way()
    if not way:
        pytest.skip(f"no other time namespace can be made: {why}")
    return [*way, "--monotonic", str(seconds), "--fork", "--kill-child"]
