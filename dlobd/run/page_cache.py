"""What the kernel has of files in memory, and how that is changed: the page cache before a run.

Linux only: `mincore` says which pages of a file are resident, `posix_fadvise` lets go of those that are written and
that no process has mapped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlobd.errors import SetupError

WINDOW_BYTES = 1 << 30
"""Of a file, mapped at once: a multiple of the page size."""

READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Residency:
    """How much of some files is in memory."""

    resident_bytes: int
    total_bytes: int


def prepared(asked: str, paths: Sequence[Path]) -> dict[str, Any]:
    """Brings files into the state that an experiment asks for, and says in which one they were, and are.

    Args:
        asked: a member of the registry `page-caches`.

    Raises:
        SetupError: a file cannot be read.
    """
    try:
        before = residency(paths)
        if asked == "cold":
            drop(paths)
        elif asked == "warm":
            read(paths)
        after = residency(paths)
    except OSError as error:
        raise SetupError(
            f"The page cache of {error.filename or 'the training files'} cannot be prepared: {error.strerror}.",
            "--set page_cache=as-is",
        ) from error
    return {"asked": asked, **asdict(after), "before_resident_bytes": before.resident_bytes}


def residency(paths: Iterable[Path]) -> Residency:
    """How much of the files is resident, in whole pages but for the end of a file. Raises OSError."""
    resident = total = 0
    for path in paths:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for begin in range(0, size, WINDOW_BYTES):
                resident += _resident(file.fileno(), begin, min(WINDOW_BYTES, size - begin))
            total += size
    return Residency(resident, total)


def drop(paths: Iterable[Path]) -> None:
    """Has the kernel drop the files' pages; what it cannot let go of stays, as all of a file in memory (tmpfs) does."""
    for path in paths:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())  # pages that are not written yet would stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(paths: Iterable[Path]) -> None:
    """Reads the files once."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass


def _resident(fd: int, begin: int, size: int) -> int:
    """Bytes of a stretch of a file whose pages are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    # private and writable, so that ctypes gives its address; nothing is written
    with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=begin) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        view = ctypes.c_char.from_buffer(mapped)
        try:
            if libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), pages):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            del view  # else the mapping cannot be closed
    there = [page & 1 for page in pages]
    whole = sum(there) * mmap.PAGESIZE
    return whole - (there[-1] * (-size % mmap.PAGESIZE))
