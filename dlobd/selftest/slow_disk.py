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
from dlobd.run import page_cache
from dlobd.selftest import truth
from dlobd.selftest.truth import Injection

POINT = "hdfs/disk"
BLKIO = Path("/sys/fs/cgroup/blkio")
LIMIT = "blkio.throttle.read_bps_device"
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
def slowed(processes: Sequence[ProcessId], files: Sequence[Path], bytes_per_s: int, directory: Path) -> Iterator[None]:
    """Caps what `processes` read from the disk of `files`, and writes down what that took: the bytes of the files that
    came from the disk, over the rate. They are dropped from memory first, so that these are the bytes that it has of
    them at the end; what the processes read besides, such as their own code, is slow too but not the files'.

    Args:
        files: all on one disk.

    Raises:
        SetupError: it is not possible here.
    """
    if not files:
        raise SetupError("There are no files whose disk could be slowed.", "look whether the data set is in HDFS")
    if reason := obstacle(files[0]):
        raise SetupError(f"A disk cannot be slowed here: {reason}.", "run as root where there is one")
    device = _device(files[0])
    page_cache.drop(files)
    group = BLKIO / f"dlobd-selftest-{os.getpid()}"
    group.mkdir()
    start_ns = time.monotonic_ns()
    try:
        (group / LIMIT).write_text(f"{device} {bytes_per_s}")
        for process in processes:
            _move(process, group)
        yield
        read_bytes = page_cache.residency(one for one in files if one.exists()).resident_bytes
        took_ns = read_bytes * 1_000_000_000 // bytes_per_s
        truth.write(directory, Injection(POINT, took_ns, start_ns, time.monotonic_ns()))
    finally:
        for process in processes:
            _move(process, BLKIO)
        _remove(group)


def _move(process: ProcessId, group: Path) -> None:
    if process.alive:
        (group / "cgroup.procs").write_text(str(process.pid))


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
