"""Reads the files of a bundle. All other modules read evidence through these functions.

A file of a bundle may be truncated, partially copied, or replaced by a link. A reader returns the content, `Missing` or
`Damaged`. It never raises, hangs or returns another program's data.
"""

import dataclasses
import errno
import io
import json
import math
import os
import stat
import types
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NotRequired, TypedDict, TypeVar, get_args

import msgspec

from dlobd.bundle.files import OUTPUTS, PARTS
from dlobd.fields import decoded

T = TypeVar("T")

LIMIT_BYTES = 512 << 20
"""Maximum size of a file that is read. The largest log of a run of two hours had 40 MB."""

BLOCK_BYTES = 4 << 20
"""Size of a block of lines of a span file, which has any size."""

OUTPUT_BYTES = 32 << 20
"""Size of the begin and of the end of an output of user code that are read."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Result of reading a file that does not exist."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Result of reading a file with unusable content. `reason` is a predicate such as "is a link"."""

    reason: str


def read_bytes(path: Path) -> bytes | Missing | Damaged:
    """Return the content of a regular file of at most `LIMIT_BYTES`; of a larger output of user code, begin and end.
    Follows no link below the bundle's directory."""
    opened = _opened(path)
    if isinstance(opened, Missing | Damaged):
        return opened
    try:
        with opened as file:
            status = os.fstat(file.fileno())
            cut = path.name in OUTPUTS and status.st_size > 2 * OUTPUT_BYTES
            content = file.read(OUTPUT_BYTES if cut else min(status.st_size, LIMIT_BYTES + 1))
            if cut:
                file.seek(-OUTPUT_BYTES, os.SEEK_END)
                content += b"\n" + file.read(OUTPUT_BYTES)
    except OSError as error:
        return Damaged(f"cannot be read: {error.strerror}")
    return Damaged(_too_large()) if len(content) > LIMIT_BYTES else content


def _opened(path: Path) -> io.BufferedReader | Missing | Damaged:
    if link := _linked_directory(path):
        return Damaged(f"lies below {link}, which is a link")
    try:
        # without O_NONBLOCK, opening a FIFO waits for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a ValueError: the name has a null character
        return Missing()
    except OSError as error:
        return Damaged("is a link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}")
    if reason := _unusable(os.fstat(descriptor), path.name):
        os.close(descriptor)
        return Damaged(reason)
    return open(descriptor, "rb")


def blocks(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file of any size, in blocks of about `BLOCK_BYTES`; nothing if it is missing or damaged. A
    file that is compressed with gzip ends where it is damaged."""
    opened = _opened(path)
    if isinstance(opened, Missing | Damaged):
        return
    rest = b""
    with opened as file:
        for block in _inflated(file) if path.suffix == ".gz" else iter(partial(_read_block, file), b""):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > BLOCK_BYTES:  # no line has this length
                lines, rest = [*lines, rest[:BLOCK_BYTES]], b""
            yield lines
    if rest:
        yield [rest]


def _inflated(file: io.BufferedReader) -> Iterator[bytes]:
    inflate, rest = zlib.decompressobj(wbits=31), b""
    try:
        while not inflate.eof and (rest := rest or _read_block(file)):
            yield inflate.decompress(rest, BLOCK_BYTES)
            rest = inflate.unconsumed_tail
        yield inflate.flush()
    except zlib.error:
        return


def _read_block(file: io.BufferedReader) -> bytes:
    try:
        return file.read(BLOCK_BYTES)
    except OSError:  # the file ends here
        return b""


def read_text(path: Path) -> str | Missing | Damaged:
    """Return the text of a file, with U+FFFD for bytes that are not UTF-8, and with universal newlines."""
    content = read_bytes(path)
    return io.TextIOWrapper(io.BytesIO(content), "utf-8", "replace").read() if isinstance(content, bytes) else content


def read_json(path: Path, shape: type[T]) -> T | Missing | Damaged:
    """Read a JSON file and check its value against a type, such as a TypedDict, a list or a union."""
    content = read_bytes(path)
    if not isinstance(content, bytes):
        return content
    value = parse_json(content, shape)
    return Damaged(f"is damaged: {value.reason}") if isinstance(value, Damaged) else value


def parse_json(text: str | bytes, shape: type[T], infinite: bool = False) -> T | Damaged:
    """Parse a JSON value and check it against a type. The `reason` of Damaged is a whole sentence. `infinite` allows
    infinite floats: the loss of a diverging training is not damaged evidence."""
    try:
        value = (_WITH_INFINITY if infinite else _FINITE).decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        return Damaged(f"not JSON ({str(error)[:80]})")
    problem = mismatch(value, shape)
    return value if problem is None else Damaged(problem)


def _int64(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:  # evidence has counters and nanoseconds: this is damage
        raise ValueError(f"{digits[:20]}... has more than 64 bits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is infinite")
    return number


_WITH_INFINITY = json.JSONDecoder(parse_int=_int64)
_FINITE = json.JSONDecoder(parse_int=_int64, parse_float=_finite, parse_constant=_finite)


def text(path: Path) -> str:
    """Return the text of a file; an empty string if it is missing or damaged (see `damage`)."""
    content = read_text(path)
    return content if isinstance(content, str) else ""


def lines(path: Path) -> list[str]:
    """Return the lines of a file without their newlines; empty if it is missing or damaged (see `damage`)."""
    content = text(path)
    return content.removesuffix("\n").split("\n") if content else []


def is_file(path: Path) -> bool:
    """Return True for a regular file that is no link."""
    return size(path) is not None


def names(directory: Path) -> Iterator[str]:
    """Yield the names of the regular files in a directory and below it. Follows no link."""
    if os.path.islink(directory):
        return
    for parent, _, entries in os.walk(directory):
        paths = (Path(parent, entry) for entry in entries)
        yield from (str(path.relative_to(directory)) for path in paths if is_file(path))


def size(path: Path) -> int | None:
    """Return the size in bytes of a regular file; None for a link, a missing file or another type of file."""
    try:
        status = path.lstat()
    except (OSError, ValueError):  # a ValueError: the name has a null character
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and not _linked_directory(path) else None


def damage(bundle: Path) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each unreadable file or directory in a bundle."""
    for part in PARTS:
        root = bundle / part
        if (root.is_symlink() or root.exists()) and (root.is_symlink() or not root.is_dir()):
            yield part, "is not a directory"
            continue
        for directory, directories, names in os.walk(root):
            for name in sorted((*directories, *names)):
                path = Path(directory, name)
                try:
                    status = path.lstat()
                except OSError as error:
                    reason = f"cannot be read: {error.strerror}"
                else:
                    reason = "" if stat.S_ISDIR(status.st_mode) else _unusable(status, name)
                if not reason and not os.access(path, os.R_OK):
                    reason = "cannot be read: Permission denied"
                if reason:
                    yield str(path.relative_to(bundle)), reason


_FILE_TYPES = {
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def _unusable(status: os.stat_result, name: str) -> str:
    if not stat.S_ISREG(status.st_mode):
        return f"is a {_FILE_TYPES.get(stat.S_IFMT(status.st_mode), 'special file')}"
    in_parts = name in OUTPUTS or name.startswith("spans-")
    return _too_large() if status.st_size > LIMIT_BYTES and not in_parts else ""


def _too_large() -> str:
    return f"is larger than {LIMIT_BYTES >> 20} MiB"


def _linked_directory(path: Path) -> str:
    """Return the first directory between a bundle and its file that is a link; empty if there is no link."""
    for parent in path.parents:
        if parent.is_symlink():
            return parent.name
        if parent.name in PARTS:
            break  # links above the bundle's own directory are allowed
    return ""


# ---- shapes of JSON values

_NONE: Mapping[str, Any] = types.MappingProxyType({})


class Members:
    """Makes the type of a JSON object, also with member names that are not Python identifiers: name -> type."""

    def __new__(cls, required: Mapping[str, Any] = _NONE, optional: Mapping[str, Any] = _NONE) -> Any:
        """Return a TypedDict, which need not have literal names at run time."""
        kinds = {**required, **{name: NotRequired[kind] for name, kind in optional.items()}}
        return TypedDict("Members", kinds)  # type: ignore[operator]


def mismatch(value: object, shape: Any) -> str | None:
    """Compare a JSON value with a type; return its first difference, or None.

    A dataclass matches an object with its fields. Members that a TypedDict does not declare are ignored.
    """
    kinds = get_args(shape) if isinstance(shape, types.UnionType) else [shape]
    problems = [_difference(value, kind) for kind in kinds]
    # the problem of a nested member is more specific than "expected `null`"
    return None if None in problems else max(filter(None, problems), key=len)


def _difference(value: Any, kind: Any) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        return f"{path.strip('.`') or 'the value'}: {text[0].lower()}{text[1:]}"
    if dataclasses.is_dataclass(kind):
        try:
            decoded(kind, value)  # type: ignore[arg-type]
        except TypeError as error:  # an unknown member
            return str(error)
    return None
