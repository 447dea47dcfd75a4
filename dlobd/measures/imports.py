"""Lists the Python packages that each process imported, with importer and time. Pure."""

from collections import defaultdict

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.record.resources import Import
from dlobd.schema import Process

MOST = 2_000
"""Maximum number of rows; a Python process has about 50."""


def imports(evidence: Evidence) -> tuple[Import, ...]:
    """Return a row per process, package and importer, the longest imports of a process first; of more than `MOST` rows,
    the longest."""
    totals: dict[tuple[Process, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for recorded in evidence.all_processes:
        for instant in recorded.instants:
            if instant.name == kinds.PACKAGE_IMPORTED:
                total = totals[recorded.process, instant.attrs["package"], instant.attrs["by"]]
                total[0] += instant.attrs["ns"]
                total[1] += instant.attrs["own_ns"]
    rows = [
        Import(process.role, process.index, process.pid, package, by, ns, own_ns)
        for (process, package, by), (ns, own_ns) in totals.items()
    ]
    longest = sorted(rows, key=lambda row: -row.ns)[:MOST]
    return tuple(sorted(longest, key=lambda row: (row.role, row.index, row.pid, -row.ns, row.package, row.by)))
