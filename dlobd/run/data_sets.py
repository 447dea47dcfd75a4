"""Lists the data sets on this machine, and fetches data sets that do not come with dlobd.

An interrupted download is resumed: received bytes are in NAME.part, which is renamed after its checksum was verified.
"""

import gzip
import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

import requests
import urllib3

from dlobd.axes import DATASETS
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.experiment.files import load
from dlobd.hadoop.failures import reason
from dlobd.job.datasets import cifar10
from dlobd.job.datasets.base import dataset_of, files_of
from dlobd.paths import locked, size_of
from dlobd.registry import unknown
from dlobd.user_file import MemberRef

ATTEMPTS = 5
"""Maximum number of attempts. An attempt that receives no bytes is the last."""

TIMEOUT_S = (10.0, 30.0)
"""Timeouts for connecting, and between two pieces of the answer."""

READ_BYTES = 1 << 16
PROGRESS_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """File with the size and checksum that its authors published."""

    name: str
    bytes: int
    md5: str

    def mismatch(self, path: Path) -> str:
        """Compare a file with the published size and checksum; return the difference in words, or an empty string."""
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if md5 == self.md5:
            return ""
        size = path.stat().st_size
        difference = f"is truncated: {size} of {self.bytes} bytes" if size < self.bytes else f"has md5 {md5}"
        return f"{difference}, expected md5 {self.md5}"


@dataclass(frozen=True, slots=True)
class Published:
    """Data set that can be fetched as a .tar.gz."""

    folder: str  # folder below a data folder
    url: str  # URL of the archive on its authors' site
    archive: PublishedFile
    inside: str  # directory in the archive that has the members
    members: tuple[PublishedFile, ...]

    @property
    def bytes(self) -> int:
        return sum(member.bytes for member in self.members)


PUBLISHED = {
    "cifar10": Published(
        cifar10.FOLDER,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        PublishedFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
        "cifar-10-batches-bin",
        tuple(PublishedFile(b.name, b.bytes, b.md5) for batches in cifar10.WHOLE.values() for b in batches),
    )
}
"""Data sets that can be fetched, by name."""


@dataclass(frozen=True, slots=True)
class LocalDataSet:
    """State of a data set on this machine. `why` has cause and remedy if it is missing."""

    name: str
    state: Literal["whole", "partial", "missing", "generated"]
    bytes: int
    where: Path | None
    why: str = ""


def local() -> list[LocalDataSet]:
    """List all data sets. No file is opened."""
    return [_local(name) for name in DATASETS.names()]


def _local(name: str) -> LocalDataSet:
    row = DATASETS.row(name)
    if why := row.reason():
        return LocalDataSet(name, "missing", 0, None, why)
    try:
        files = files_of(dataset_of(replace(load("softmax-mnist"), dataset=MemberRef(name))))
    except DlobdError as error:  # data set of another package
        return LocalDataSet(name, "missing", 0, None, error.what)
    if not files:
        return LocalDataSet(name, "generated", 0, None)
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        again = f"; dlobd data fetch {name}" if name in PUBLISHED else ""
        return LocalDataSet(name, "missing", 0, files[0].parent, f"it lacks the files {', '.join(missing)}{again}")
    size = sum(path.stat().st_size for path in files)
    return LocalDataSet(name, "partial" if row.part_of else "whole", size, files[0].parent)


def published(name: str) -> Published:
    """Return the published form of a data set. Raises UsageError if no data set of this name can be fetched."""
    if name not in PUBLISHED:
        if name in DATASETS.names() and (whole := DATASETS.row(name).part_of):
            raise UsageError(f"{name} is a part of {whole} in dlobd's repository.", f"dlobd data fetch {whole}")
        if name in DATASETS.names():
            raise UsageError(f"{name} needs no download.", "dlobd data list")
        raise UsageError(unknown("data set to fetch", name, PUBLISHED), "dlobd data list")
    return PUBLISHED[name]


def fetch(dataset: Published, source: str | None, top: Path, progress: Callable[[str], None]) -> Path:
    """Put all files of a data set into its folder below `top` and verify them; return the folder.

    `source` is the URL of the archive, or of its directory (ends with "/"), or the path of either on this machine; by
    default the authors' site. Raises UsageError if it is neither a URL nor a path, SetupError if the files cannot be
    fetched, differ from the published files, or do not fit on the disk.
    """
    folder = top / dataset.folder
    with locked(folder / ".lock"):
        if all(_is_whole(folder / member.name, member) for member in dataset.members):
            progress(f"all files are in {folder} already")
            return folder
        for stale in folder.glob(".*.bin.*"):  # left by a killed command; this process holds the lock
            stale.unlink()
        local_source = Path(source).expanduser() if source else None
        if local_source and local_source.exists():
            _from_disk(dataset, local_source, folder, progress)
        elif source is None or source.startswith(("http://", "https://")):
            url = dataset.url if source is None else source + dataset.archive.name * source.endswith("/")
            _from_site(dataset, url, folder, progress)
        else:
            raise UsageError(
                f"--from {source} is neither a file or directory nor an http URL.",
                f"--from {dataset.url}, or a directory that holds {dataset.archive.name}",
            )
    return folder


def _is_whole(path: Path, member: PublishedFile) -> bool:
    return path.is_file() and path.stat().st_size == member.bytes and not member.mismatch(path)


def _from_disk(dataset: Published, source: Path, folder: Path, progress: Callable[[str], None]) -> None:
    archive = source / dataset.archive.name if source.is_dir() else source
    remedy = f"--from a directory that holds {dataset.archive.name} of {dataset.url}"
    _check_space(folder, dataset.bytes)
    progress(f"unpacking {archive}")
    try:
        difference = dataset.archive.mismatch(archive)
    except OSError as error:
        raise SetupError(f"{archive} cannot be read: {error.strerror}.", remedy) from error
    if difference:
        raise SetupError(f"The archive {archive} {difference}.", remedy)
    _unpack(archive, dataset, folder, remedy)


def _from_site(dataset: Published, url: str, folder: Path, progress: Callable[[str], None]) -> None:
    archive = folder / dataset.archive.name
    remedy = "check network and proxy, or fetch the archive elsewhere and use --from with its directory"
    if not archive.exists():
        _check_space(folder, dataset.bytes + dataset.archive.bytes)
        download(url, dataset.archive, archive, remedy, progress)
    progress(f"unpacking {archive.name}")
    if difference := dataset.archive.mismatch(archive):  # left by an earlier command
        archive.unlink()
        raise SetupError(f"The archive {archive} {difference}.", "run the same command again")
    _unpack(archive, dataset, folder, remedy)
    archive.unlink()


def _check_space(folder: Path, size: int) -> None:
    if (free := shutil.disk_usage(folder).free) < size:
        raise SetupError(
            f"{folder} has {free / 1e6:.0f} MB free, and {size / 1e6:.0f} MB are needed.",
            "free some space, or use --to with another directory",
        )


def _unpack(archive: Path, dataset: Published, folder: Path, remedy: str) -> None:
    """Unpack only the data set's members. A member gets its final name after its checksum was verified.
    Raises SetupError if the archive is damaged or has different content, or the folder cannot be written."""
    wanted = {f"{dataset.inside}/{member.name}": member for member in dataset.members}
    not_published = f"The archive {archive.name} is not the published archive"
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for entry in tar:
                # paths in the archive are not trusted, and a link could point to another file
                if not entry.isreg() or not (member := wanted.pop(entry.name, None)):
                    continue
                content = tar.extractfile(entry)
                partial = folder / f".{member.name}.{os.getpid()}"
                try:
                    partial.write_bytes(content.read(member.bytes + 1) if content else b"")
                    if difference := member.mismatch(partial):
                        raise SetupError(f"{not_published}: {member.name} {difference}.", remedy)
                    os.replace(partial, folder / member.name)
                finally:
                    partial.unlink(missing_ok=True)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SetupError(f"The archive {archive.name} is damaged: {error}.", remedy) from error
    except OSError as error:
        raise SetupError(f"{folder} cannot be written: {error.strerror}.", "free some space there") from error
    if wanted:
        raise SetupError(f"{not_published}: it lacks {min(wanted)}.", remedy)


# ---- download


def download(url: str, file: PublishedFile, path: Path, remedy: str, progress: Callable[[str], None]) -> None:
    """Download `file` to `path`. Raises SetupError, which ends with `remedy`, if the download fails."""
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, ATTEMPTS + 1):
        had = size_of(part)
        try:
            _append(url, file, part, remedy, progress)
            why = f"closed the connection after {size_of(part)} of {file.bytes} bytes"
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            why = reason(error, *TIMEOUT_S)
        except OSError as error:
            raise SetupError(f"{part} cannot be written: {error.strerror}.", "free some space there") from error
        now = size_of(part)
        if now >= file.bytes:
            break
        if now <= had or attempt == ATTEMPTS:
            kept = f"; {now / 1e6:.1f} of {file.bytes / 1e6:.1f} MB are kept" if now else ""
            again = "run the same command again, which continues the download; or " if now else ""
            raise SetupError(f"{url} {why}{kept}.", f"{again}{remedy}")
        progress(f"{path.name}: the server {why}; continuing at {now / 1e6:.1f} MB")
    if difference := file.mismatch(part):
        part.unlink()
        raise SetupError(f"The file from {url} {difference}.", f"run the same command again; or {remedy}")
    os.replace(part, path)


def _append(url: str, file: PublishedFile, part: Path, remedy: str, progress: Callable[[str], None]) -> None:
    had = size_of(part)
    if had == file.bytes:
        return
    headers = {"Accept-Encoding": "identity"}
    if 0 < had < file.bytes:
        headers["Range"] = f"bytes={had}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
        if response.status_code not in (requests.codes.ok, requests.codes.partial_content):
            raise SetupError(f"{url} answered {response.status_code} {response.reason}.", remedy)
        start, total = _range(response)
        if start != (had if response.status_code == requests.codes.partial_content else 0):
            part.unlink()  # removed, so that the next attempt starts over
            raise SetupError(f"{url} answered with bytes from {start}, not from {had}.", remedy)
        if total not in (None, file.bytes):
            raise SetupError(f"{url} has {total} bytes, expected {file.bytes}.", remedy)
        with part.open("ab") as output:
            output.truncate(start)
            _receive(response, output, start, file, progress)


def _range(response: requests.Response) -> tuple[int, int | None]:
    """Return the offset of the first byte of the answer, and the size of the whole file if the server states it."""
    if response.status_code == requests.codes.partial_content:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        first = span.partition("-")[0]
        start = int(first) if first.isdecimal() else -1
    else:
        start, total = 0, response.headers.get("Content-Length", "")
    return start, int(total) if total.isdecimal() else None


def _receive(
    response: requests.Response, output: IO[bytes], start: int, file: PublishedFile, progress: Callable[[str], None]
) -> None:
    arrived, reported = start, -1
    while arrived <= file.bytes:
        if arrived // PROGRESS_BYTES != reported:
            reported = arrived // PROGRESS_BYTES
            progress(f"{file.name}: {arrived // 1_000_000} of {file.bytes / 1e6:.0f} MB")
        # not decoded: some servers declare .gz as a content encoding
        data = response.raw.read(READ_BYTES, decode_content=False)
        if not data:
            return
        # at most one byte too many: this causes a checksum error without filling the disk
        arrived += output.write(data[: file.bytes + 1 - arrived])
