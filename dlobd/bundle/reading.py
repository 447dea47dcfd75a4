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
import typing
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NewType, NotRequired, TypeGuard, TypeVar, Union, get_args, get_origin, is_typeddict

from dlobd.bundle.files import OUTPUTS, PARTS

T = TypeVar("T")

Loss = NewType("Loss", float)
"""Float that may be infinite or NaN: the loss of a diverging training is not damaged evidence."""

LIMIT_BYTES = 512 << 20
"""Maximum size of a file that is read. The largest log of a run of two hours had 40 MB."""

BLOCK_BYTES = 4 << 20
"""Size of a block of lines of a span file, which has any size."""

OUTPUT_BYTES = 32 << 20
"""Size of the begin and of the end of an output of user code that are read."""

MAX_INT = 2**63
"""Bound for integers. Integers of evidence are counters and nanoseconds: more than 64 bits indicate damage."""


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
            content = file.read(OUTPUT_BYTES if cut else LIMIT_BYTES + 1)
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
    except (FileNotFoundError, NotADirectoryError):
        return Missing()
    except ValueError:  # a name with a null character
        return Missing()
    except OSError as error:
        return Damaged("is a link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}")
    if reason := _unusable(os.fstat(descriptor), path.name):
        os.close(descriptor)
        return Damaged(reason)
    return open(descriptor, "rb")


def blocks(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file of any size, in blocks of about `BLOCK_BYTES`; nothing if it is missing or damaged (see
    `damage`)."""
    opened = _opened(path)
    if isinstance(opened, Missing | Damaged):
        return
    rest = b""
    with opened as file:
        while block := _read_block(file):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > BLOCK_BYTES:  # no line has this length
                lines, rest = [*lines, rest[:BLOCK_BYTES]], b""
            yield lines
    if rest:
        yield [rest]


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


def parse_json(text: str | bytes, shape: type[T]) -> T | Damaged:
    """Parse a JSON value and check it against a type. The `reason` of Damaged is a whole sentence."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Damaged(f"not JSON ({str(error)[:80]})")
    problem = mismatch(value, shape)
    return value if problem is None else Damaged(problem)


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
    else:
        return ""
    return ""


# ---- shapes of JSON values


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Shape of a JSON object whose member names are not Python identifiers: name -> shape."""

    required: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optional: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListOf:
    """Shape of an array of `Members`."""

    item: Members


@dataclass(frozen=True, slots=True)
class OrNull:
    """Shape of `Members`, or null."""

    value: Members


def mismatch(value: object, shape: Any, where: str = "") -> str | None:
    """Compare a JSON value with a type; return its first difference, or None.

    A dataclass matches an object with its fields. Members that a TypedDict does not declare are ignored. An int has
    at most 64 bits; a bool is no int.
    """
    check = _checker(shape)
    return check(value, where)


Checker = Callable[[object, str], str | None]


@cache
def _checker(shape: Any) -> Checker:
    if shape is Any or shape is object:
        return lambda value, where: None
    if shape is None or shape is type(None):
        return lambda value, where: None if value is None else _differs(value, where, "null")
    if shape is Loss:
        return lambda value, where: None if is_int(value) or type(value) is float else _differs(value, where, "number")
    if shape is float:
        return lambda value, where: None if _is_number(value) else _differs(value, where, "number")
    if shape is int:
        return lambda value, where: None if is_int(value) else _differs(value, where, "64-bit integer")
    if shape in (str, bool):
        return lambda value, where: None if isinstance(value, shape) else _differs(value, where, shape.__name__)
    if isinstance(shape, Members):
        return _object_checker({**shape.required, **shape.optional}, shape.required.keys())
    if isinstance(shape, ListOf):
        return _list_checker(_checker(shape.item))
    if isinstance(shape, OrNull):
        return _union_checker([_checker(None), _checker(shape.value)])
    if is_typeddict(shape):
        # with postponed annotations, __required_keys__ has members that are NotRequired
        hints = typing.get_type_hints(shape, include_extras=True)
        optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
        return _object_checker(typing.get_type_hints(shape), shape.__required_keys__ - optional)
    if dataclasses.is_dataclass(shape):
        needed = {f.name for f in dataclasses.fields(shape) if f.default is f.default_factory is dataclasses.MISSING}
        return _object_checker(typing.get_type_hints(shape), needed, closed=True)
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in (Union, types.UnionType):
        return _union_checker([_checker(argument) for argument in arguments])
    if origin is Literal:
        return lambda value, where: None if value in arguments else _differs(value, where, f"one of {arguments}")
    if origin is list:
        return _list_checker(_checker(arguments[0]))
    if origin is tuple:
        if arguments[1:] == (...,):
            return _list_checker(_checker(arguments[0]))
        return _tuple_checker([_checker(argument) for argument in arguments])
    if origin is dict and arguments[0] is str:
        return _dict_checker(_checker(arguments[1]))
    raise TypeError(f"no JSON value has the type {shape}")


def is_int(value: object) -> TypeGuard[int]:
    """Return True for an integer of at most 64 bits; not for a bool."""
    return type(value) is int and -MAX_INT <= value < MAX_INT


def _is_number(value: object) -> bool:
    # 1e400 is read as infinity
    return is_int(value) or (type(value) is float and not math.isinf(value))


def _object_checker(shapes: Mapping[str, Any], required: Set[str], *, closed: bool = False) -> Checker:
    members = {name: _checker(shape) for name, shape in shapes.items()}

    def check(value: object, where: str) -> str | None:
        if not isinstance(value, dict):
            return _differs(value, where, "object")
        for name, check_member in members.items():
            inner = f"{where}.{name}" if where else name
            if name in value:
                if problem := check_member(value[name], inner):
                    return problem
            elif name in required:
                return f"{inner} is missing"
        if closed and (unknown := value.keys() - members.keys()):
            return f"{where or 'the value'} has an unknown member {min(unknown)}"
        return None

    return check


def _union_checker(checkers: list[Checker]) -> Checker:
    def check(value: object, where: str) -> str | None:
        problems = [check_value(value, where) for check_value in checkers]
        if None in problems:
            return None
        # the problem of a nested member is more specific than "is not null"
        return max((problem for problem in problems if problem), key=len)

    return check


def _list_checker(check_item: Checker) -> Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, list):
            return _differs(value, where, "array")
        return next((problem for i, item in enumerate(value) if (problem := check_item(item, f"{where}[{i}]"))), None)

    return check


def _tuple_checker(checkers: list[Checker]) -> Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, list) or len(value) != len(checkers):
            return _differs(value, where, f"array of {len(checkers)}")
        pairs = enumerate(zip(checkers, value, strict=True))
        return next(
            (problem for i, (check_item, item) in pairs if (problem := check_item(item, f"{where}[{i}]"))), None
        )

    return check


def _dict_checker(check_value: Checker) -> Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, dict):
            return _differs(value, where, "object")
        problems = (check_value(item, f"{where}.{name}" if where else name) for name, item in value.items())
        return next(filter(None, problems), None)

    return check


def _differs(value: object, where: str, wanted: str) -> str:
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
    else:
        shown = json.dumps(value, default=str)
        kind = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f"{where or 'the value'} is {kind}, not {_article(wanted)} {wanted}"


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"
