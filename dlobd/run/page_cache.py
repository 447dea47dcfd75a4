"""Reads and changes the page cache's state for the training files, and reads it for the job's environment.

Linux only: `mincore` reports the resident pages of a file, `posix_fadvise` drops clean pages that are not mapped.
A start with a cold cache reads its environment from disk. Large files determine the time of this read: TensorFlow's
libraries, Java's classes and Spark's jars.
"""

import ctypes
import importlib.util
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dlobd.errors import SetupError
from dlobd.measures.environment_cache import TENSORFLOW

WINDOW_BYTES = 1 << 30
"""Maximum bytes of a file that are mapped at once: a multiple of the page size."""

READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Residency:
    """Total and resident bytes of some files."""

    resident_bytes: int
    total_bytes: int


def prepared(asked: str, paths: Sequence[Path]) -> dict[str, object]:
    """Set the files' page-cache state to `asked`, a name of the registry `page-caches`; return both states as evidence.

    Raises SetupError if a file cannot be read.
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
    """Measure the resident bytes of files, in whole pages except at the end. Raises OSError."""
    resident = total = 0
    for path in paths:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for begin in range(0, size, WINDOW_BYTES):
                resident += _resident(file.fileno(), begin, min(WINDOW_BYTES, size - begin))
            total += size
    return Residency(resident, total)


def drop(paths: Iterable[Path]) -> None:
    """Ask the kernel to drop the files' pages. Mapped pages and files in tmpfs stay."""
    for path in paths:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())  # dirty pages would stay in the cache
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(paths: Iterable[Path]) -> None:
    """Read the files once."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass


def _resident(fd: int, begin: int, size: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # private and writable, because ctypes returns the address of writable memory only; nothing is written
    with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=begin) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        view = ctypes.c_char.from_buffer(mapped)
        try:
            if libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), pages):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            del view  # otherwise the mapping cannot be closed
    resident = [page & 1 for page in pages]
    whole = sum(resident) * mmap.PAGESIZE
    return whole - (resident[-1] * (-size % mmap.PAGESIZE))


# ---- the job's environment

Parts = Mapping[str, Sequence[Path]]
"""Large files by product."""


def environment_parts(java_home: Path | None) -> Parts:
    """Return the large files of a job's environment. A job without JVMs has no `java_home`."""
    parts = {TENSORFLOW: [*_in_package("tensorflow", "*.so*"), *_in_package("tensorflow", "python/*.so*")]}
    if java_home is not None:
        parts["Java"] = [java_home / "lib" / "modules", *java_home.glob("lib/server/*")]
        parts["Spark"] = _in_package("pyspark", "jars/*.jar")
    existing = {product: [path for path in paths if path.is_file()] for product, paths in parts.items()}
    return {product: paths for product, paths in existing.items() if paths}


def environment_residency(parts: Parts) -> dict[str, dict[str, int] | None]:
    """Measure the resident bytes of each part; None if the kernel does not report them.

    The kernel reports them to the owner of a file and to users who may write it. For others all are resident.
    """

    def measured(paths: Sequence[Path]) -> dict[str, int] | None:
        try:
            ours = all(os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid() for path in paths)
            return asdict(residency(paths)) if ours else None
        except OSError:
            return None

    return {product: measured(paths) for product, paths in parts.items()}


def environment_evidence(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Combine the measurements before and after the run, by part."""
    return {product: {"before": before[product], "after": after[product]} for product in before}


def _in_package(name: str, pattern: str) -> list[Path]:
    """Return files of a package without importing it; empty if the package is not installed."""
    spec = importlib.util.find_spec(name)
    directories = spec.submodule_search_locations or () if spec else ()
    return [path for directory in directories for path in Path(directory).glob(pattern)]
