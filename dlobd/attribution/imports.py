"""Which Python packages each process imported, for whom, and how long that took. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.importers.evidence import Evidence
from dlobd.schema import Process


def imports(evidence: Evidence) -> list[dict[str, Any]]:
    """The member `imports` of run.json: one row a process, package and importer, those of a process by their length.

    Times are the process's: where a package was imported in several pieces, their sum."""
    found: dict[tuple[Process, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for recorded in evidence.processes:
        for instant in recorded.instants:
            if instant.name == kinds.PACKAGE_IMPORTED:
                total = found[recorded.process, instant.attrs["package"], instant.attrs["by"]]
                total[0] += instant.attrs["ns"]
                total[1] += instant.attrs["own_ns"]
    rows = [
        {
            "role": who.role,
            "index": who.index,
            "pid": who.pid,
            "package": package,
            "by": by,
            "ns": ns,
            "own_ns": own_ns,
        }
        for (who, package, by), (ns, own_ns) in found.items()
    ]
    return sorted(rows, key=lambda row: (row["role"], row["index"], row["pid"], -row["ns"], row["package"], row["by"]))
