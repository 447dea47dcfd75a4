"""Memory that is available to this process. Standard library only."""

import resource
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")

_FILES = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Controller in /proc/self/cgroup, of version 2 and of version 1 -> files with the limit and the use of a group."""


def available_memory_bytes() -> int:
    """Return the memory that this machine has left, within the limits of this process and of its control groups."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    own = [] if soft == resource.RLIM_INFINITY else [soft - address_space_bytes()]
    return max(0, min([int(lines["MemAvailable"].split()[0]) << 10, *own, *_left_in_groups()]))


def address_space_bytes() -> int:
    """Return the size of this process's address space, which RLIMIT_AS limits."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _left_in_groups() -> Iterator[int]:
    """Yield the memory that each control group around this process has left."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in {*controllers.split(",")} & _FILES.keys():
            top, (limit, used) = CGROUPS / controller, _FILES[controller]
            own = top / path.lstrip("/")
            for group in (own, *own.parents):
                try:
                    # file pages are reclaimed under pressure
                    stat = dict(row.split() for row in (group / "memory.stat").read_text().splitlines())
                    held = int((group / used).read_text()) - int(stat.get("inactive_file", 0))
                    yield int((group / limit).read_text()) - held
                except (OSError, ValueError):  # no limit, or the group is not visible in a container
                    pass
                if group == top:
                    break
