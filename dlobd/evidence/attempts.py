"""Finds the attempt of a YARN application that a container belongs to, by the container's ID. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# container ids carry an epoch after a ResourceManager restart: container_e01_<timestamp>_...
CONTAINER = re.compile(r"\bcontainer_(?:e\d+_)?(\d+_\d+)_(\d+)_\d+\b")
"""Groups: timestamp and number of the application, and the attempt."""


def attempt_of(container: str) -> int:
    """Return the number of a container's attempt, from 1; 0 for a name that is no container ID."""
    match = CONTAINER.search(container)
    return int(match[2]) if match else 0


class Attempts:
    """The attempts of one application, each with its ApplicationMaster's container: the first of its ids."""

    def __init__(self, containers: Iterable[str]) -> None:
        self._ams: dict[int, str] = {}
        for container in sorted(containers):
            self._ams.setdefault(attempt_of(container), container)

    @property
    def ams(self) -> list[str]:
        """The ApplicationMaster's container of each attempt, in order."""
        return list(self._ams.values())

    @property
    def am(self) -> str:
        """The ApplicationMaster's container of the last attempt; empty without an attempt."""
        return self.ams[-1] if self._ams else ""

    def am_of(self, container: str) -> str:
        """Return the ApplicationMaster's container of a container's attempt; empty without an attempt."""
        return self._ams.get(attempt_of(container), "")
