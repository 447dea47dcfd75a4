"""Hadoop settings that the user gives the embedded cluster: which are taken, and which file each of them belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dlobd.errors import UsageError

SITES = {
    "dfs.": "hdfs-site",
    "yarn.scheduler.capacity.": "capacity-scheduler",
    "yarn.": "yarn-site",
    "hadoop.": "core-site",
    "fs.": "core-site",
    "io.": "core-site",
    "ipc.": "core-site",
}
"""How a key begins, the longer beginning first, and the file that Hadoop reads it from."""


def parsed(words: Iterable[str], needed: Collection[str]) -> dict[str, str]:
    """Settings from words of the form KEY=VALUE.

    Args:
        needed: keys that the cluster sets itself, and would not work without.

    Raises:
        UsageError: a word is none, or its key is not Hadoop's or among those.
    """
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key:
            raise UsageError(f"--conf {word}: not KEY=VALUE.", "for example --conf dfs.replication=2")
        if _site(key) is None:
            raise UsageError(f"--conf {key}: not a setting of HDFS, YARN or Hadoop.", f"it begins with {_beginnings()}")
        if key in needed:
            raise UsageError(f"--conf {key}: the embedded cluster sets it itself.", "leave it out")
        found[key] = value
    return found


def of_site(settings: Mapping[str, str], site: str) -> dict[str, str]:
    """Those that belong to one file."""
    return {key: value for key, value in settings.items() if _site(key) == site}


def words(settings: Mapping[str, str]) -> list[str]:
    """KEY=VALUE, in order."""
    return [f"{key}={value}" for key, value in sorted(settings.items())]


def _site(key: str) -> str | None:
    return next((site for beginning, site in SITES.items() if key.startswith(beginning)), None)


def _beginnings() -> str:
    *most, last = dict.fromkeys(beginning.split(".")[0] + "." for beginning in SITES)
    return f"{', '.join(most)} or {last}"
