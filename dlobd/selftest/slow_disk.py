"""A slow disk: the control group of some processes may read only so many bytes a second from theirs.

Only these processes are slowed, and only while the context lasts. Needs root, a file system on a block device, and the
controller blkio of control groups version 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlobd.errors import SetupError
from dlobd.hadoop.embedded.processes import ProcessId
from dlobd.selftest import truth
from dlobd.selftest.truth import Injection

POINT = "hdfs/disk"
BLKIO = Path("/sys/fs/cgroup/blkio")
LIMIT, READ = "blkio.throttle.read_bps_device", "blkio.throttle.io_service_bytes"
GONE_S = 5.0


def obstacle(path: Path) -> str:
    """Why a disk cannot be slowed here; empty if it can."""
    if os.geteuid():
        return "it needs root"
    if not (BLKIO / LIMIT).exists():
        return "it needs the controller blkio of control groups version 1"
    if not Path(f"/sys/dev/block/{_device(path)}").exists():
        return f"{path} is not on a block device"
    return ""


@contextmanager
def slowed(processes: Sequence[ProcessId], path: Path, bytes_per_s: int, directory: Path) -> Iterator[None]:
    """Caps what `processes` read from the disk that holds `path`, and writes down what that took: the bytes that came
    from the disk, by the kernel's count, over the rate.

    Raises:
        SetupError: it is not possible here.
    """
    if reason := obstacle(path):
        raise SetupError(f"A disk cannot be slowed here: {reason}.", "run as root where there is one")
    device = _device(path)
    group = BLKIO / f"dlobd-selftest-{os.getpid()}"
    group.mkdir()
    start_ns = time.monotonic_ns()
    try:
        (group / LIMIT).write_text(f"{device} {bytes_per_s}")
        for process in processes:
            _move(process, group)
        yield
        took_ns = _read_bytes(group, device) * 1_000_000_000 // bytes_per_s
        truth.write(directory, Injection(POINT, took_ns, start_ns, time.monotonic_ns()))
    finally:
        for process in processes:
            _move(process, BLKIO)
        _remove(group)


def _move(process: ProcessId, group: Path) -> None:
    if process.alive:
        (group / "cgroup.procs").write_text(str(process.pid))


def _read_bytes(group: Path, device: str) -> int:
    for line in (group / READ).read_text().splitlines():
        match line.split():
            case [name, "Read", count] if name == device:
                return int(count)
    return 0


def _remove(group: Path) -> None:
    deadline = time.monotonic() + GONE_S
    while True:
        try:
            return group.rmdir()
        except OSError:  # what is on its way to the disk still belongs to it
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _device(path: Path) -> str:
    there = next(one for one in (path, *path.resolve().parents) if one.exists())  # before it was ever used
    number = there.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"
