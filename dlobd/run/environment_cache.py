"""What this machine has in memory of a job's environment, before and after it ran: a cold start reads it from disk.

Only the large files count, which decide how long a start takes: TensorFlow's libraries, Java's classes, Spark's jars.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlobd.run.page_cache import residency

Parts = Mapping[str, Sequence[Path]]


def parts(java_home: Path | None) -> Parts:
    """The files, by what they are of.

    Args:
        java_home: of the JVMs; None for a job without any.
    """
    found = {"TensorFlow": [path for directory in _package("tensorflow") for path in directory.glob("*.so*")]}
    found["TensorFlow"] += [path for directory in _package("tensorflow") for path in directory.glob("python/*.so*")]
    if java_home is not None:
        found["Java"] = [java_home / "lib" / "modules", *java_home.glob("lib/server/*")]
        found["Spark"] = [path for directory in _package("pyspark") for path in directory.glob("jars/*.jar")]
    return {what: kept for what, paths in found.items() if (kept := [path for path in paths if path.is_file()])}


def look(found: Parts) -> dict[str, dict[str, int] | None]:
    """How much of each part is in memory; None where the kernel would not say.

    It tells of a file who owns it or may write it; to others it calls all of it resident.
    """
    return {what: _look(paths) for what, paths in found.items()}


def joined(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence of two looks, by part."""
    return {what: {"before": before[what], "after": after[what]} for what in before}


def _look(paths: Sequence[Path]) -> dict[str, int] | None:
    if not all(map(_told, paths)):
        return None
    try:
        seen = residency(paths)
    except OSError:
        return None
    return {"resident_bytes": seen.resident_bytes, "total_bytes": seen.total_bytes}


def _told(path: Path) -> bool:
    try:
        return os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _package(name: str) -> list[Path]:
    """The directory of a package, which is not imported; none where it is not installed."""
    spec = importlib.util.find_spec(name)
    return [Path(each) for each in spec.submodule_search_locations or ()] if spec else []
