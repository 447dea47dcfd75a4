"""Unpacks the files of a data set out of an archive: those that are expected, under our own names, of known size."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from dlobd.errors import SetupError

SLACK_BYTES = 1 << 20
"""What an archive may hold besides: headers, a README."""

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a data set."""

    name: str
    bytes: int
    md5: str


def unpack(archive: Path, inside: str, members: Sequence[Member], folder: Path, remedy: str) -> None:
    """Unpacks `members`, which lie in the directory `inside` of a .tar.gz, into `folder`. Others are not unpacked.

    Raises:
        SetupError: the archive is damaged, lacks one, or has another content.
    """
    wanted = {f"{inside}/{member.name}": member for member in members}
    try:
        with gzip.open(archive) as packed:
            bounded = _Bounded(packed, sum(member.bytes for member in members) + SLACK_BYTES)
            with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r|") as tar:
                for entry in tar:
                    # where it goes is never decided by the archive
                    if member := wanted.pop(entry.name, None):
                        _unpack(tar, entry, member, folder)
    except _Unlike as error:
        raise SetupError(f"The archive {archive.name} is not the published one: {error}.", remedy) from None
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SetupError(f"The archive {archive.name} is damaged: {error}.", remedy) from error
    except OSError as error:
        raise SetupError(f"{folder} cannot be written: {error.strerror}.", "free some space there") from error
    if wanted:
        raise SetupError(f"The archive {archive.name} is not the published one: it lacks {min(wanted)}.", remedy)


def copy(source: IO[bytes], member: Member, folder: Path) -> str:
    """Copies a file of a data set; it gets its name once its content is right. Returns what is wrong, else nothing."""
    aside = folder / f".{member.name}.{os.getpid()}"
    md5 = hashlib.md5(usedforsecurity=False)
    size = 0
    try:
        with aside.open("wb") as file:
            while size <= member.bytes and (data := source.read(_COPY_BYTES)):
                md5.update(data)
                size += file.write(data)
        if size != member.bytes:
            return f"{member.name} has {'more than' if size > member.bytes else f'{size} of'} {member.bytes} bytes"
        if md5.hexdigest() != member.md5:
            return f"{member.name} has md5 {md5.hexdigest()}, not {member.md5}"
        os.replace(aside, folder / member.name)
    finally:
        aside.unlink(missing_ok=True)
    return ""


class _Unlike(Exception):
    """It has another content than the published archive."""


def _unpack(tar: tarfile.TarFile, entry: tarfile.TarInfo, member: Member, folder: Path) -> None:
    content = tar.extractfile(entry) if entry.isreg() else None  # of a link it would be another file's
    if content is None:
        raise _Unlike(f"{entry.name} is not a file")
    if wrong := copy(content, member, folder):
        raise _Unlike(wrong)


class _Bounded:
    """A stream that may not unpack to more than `left` bytes."""

    def __init__(self, file: gzip.GzipFile, left: int) -> None:
        self._file = file
        self._left = left

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _Unlike("it unpacks to more than its files")
        return data
