"""How a trainer's process ended, in words; of one that the kernel killed for want of memory, that too.

From outside it looks like any kill -9, and YARN knows nothing of the limits of a container that it runs in itself.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")

_FILES = {"memory": ("memory.oom_control", "memory.limit_in_bytes"), "": ("memory.events", "memory.max")}
"""Of control groups of version 1 and 2: where the kernel counts its kills, and where the limit stands. Source:
Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of Linux."""


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The control group of this process, and of its children.

    Args:
        kills: how many processes the kernel has killed in it because of its limit; None where it does not count.
        limit_mb: None for no limit.
    """

    kills: int | None
    limit_mb: int | None

    @classmethod
    def read(cls, root: Path = ROOT) -> MemoryGroup:
        """Now."""
        try:
            lines = (root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            _, controllers, path = line.split(":", 2)
            controller = "memory" if "memory" in controllers.split(",") else controllers
            if controller not in _FILES:
                continue
            top = root / "sys/fs/cgroup" / controller
            # in a container the group is mounted where the machine has the uppermost one
            for directory in (top / path.lstrip("/"), top):
                counted, limited = (_text(directory / name) for name in _FILES[controller])
                if found := re.search(r"^oom_kill (\d+)$", counted, re.MULTILINE):
                    return cls(int(found[1]), int(limited) >> 20 if limited.strip().isdecimal() else None)
        return cls(None, None)


def how(code: int, before: MemoryGroup | None = None) -> str:
    """`killed by signal 9`, `exit code 1`.

    Args:
        code: as subprocess has it: a negative one is a signal.
        before: the control group when the process was started.
    """
    if code >= 0:
        return f"exit code {code}"
    words = f"killed by signal {-code}"
    now = MemoryGroup.read() if code == -signal.SIGKILL and before else None
    if now and before and now.kills is not None and now.kills > (before.kills or 0):
        limit = f", whose limit is {now.limit_mb} MB" if now.limit_mb is not None else ""
        words += f" (by the kernel: out of memory in the control group of its host{limit})"
    return words


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
