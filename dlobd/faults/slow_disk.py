"""Slow disk: a control group limits the bytes per second that some processes read from their disk.

Other processes are not slowed. Needs root, a file system on a block device, and blkio of control groups 1.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlobd.errors import SetupError
from dlobd.faults import injection_log
from dlobd.faults.injection_log import Injection
from dlobd.process_id import ProcessId
from dlobd.run import page_cache

BLKIO = Path("/sys/fs/cgroup/blkio")
LIMIT = "blkio.throttle.read_bps_device"
GONE_S = 5.0


def obstacle(path: Path) -> str:
    """Return the reason why this machine's disk cannot be slowed; empty if it can be slowed."""
    if os.geteuid():
        return "it needs root"
    if not (BLKIO / LIMIT).exists():
        return "it needs the controller blkio of control groups version 1"
    if not Path(f"/sys/dev/block/{_device(path)}").exists():
        return f"{path} is not on a block device"
    return ""


@contextmanager
def slowed(
    point: str, processes: Sequence[ProcessId], files: Sequence[Path], bytes_per_s: int, directory: Path
) -> Iterator[None]:
    """Limit the disk reads of `processes`; log bytes divided by rate as the time of reading `files`, all on one disk.

    The kernel drops the files from memory first, so that the bytes in memory at the end came from the disk. Other reads
    of the processes, such as their own code, are slow but not counted. Raises SetupError if no disk can be slowed.
    """
    if not files:
        raise SetupError("The data set has no file on the disk to be slowed.", "check that the data set is in HDFS")
    if reason := obstacle(files[0]):
        raise SetupError(f"A disk cannot be slowed here: {reason}.", "run as root where these control groups exist")
    device = _device(files[0])
    page_cache.drop(files)
    group = BLKIO / f"dlobd-faults-{os.getpid()}"
    group.mkdir()
    start_ns = time.monotonic_ns()
    try:
        (group / LIMIT).write_text(f"{device} {bytes_per_s}")
        for process in processes:
            _move(process, group)
        yield
        read_bytes = page_cache.residency(file for file in files if file.exists()).resident_bytes
        read_ns = read_bytes * 1_000_000_000 // bytes_per_s
        injection_log.write(directory, Injection(point, read_ns, start_ns, time.monotonic_ns()))
    finally:
        for process in processes:
            _move(process, BLKIO)
        _remove(group)


def _move(process: ProcessId, group: Path) -> None:
    if process.alive:
        (group / "cgroup.procs").write_text(str(process.pid))


def _remove(group: Path) -> None:
    deadline_s = time.monotonic() + GONE_S
    while True:
        try:
            return group.rmdir()
        except OSError:  # data on its way to the disk still belongs to the group
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _device(path: Path) -> str:
    existing = next(parent for parent in (path, *path.resolve().parents) if parent.exists())
    number = existing.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"
