"""Lists the data sets on this machine, and fetches data sets that do not come with dlobd."""

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dlobd.axes import DATASETS
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.experiment.files import load
from dlobd.job.datasets import cifar10, user
from dlobd.job.datasets.base import dataset_of
from dlobd.paths import locked
from dlobd.registry import unknown
from dlobd.run.download import PublishedFile, download
from dlobd.user_file import MemberRef


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
        files = user.files(dataset_of(replace(load("softmax-mnist"), dataset=MemberRef(name))))
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

    Args:
        source: the URL of the archive, or of its directory (ends with "/"); or the path of either on this machine.
            None: the authors' site.

    Raises:
        UsageError: `source` is neither a URL nor a path.
        SetupError: the files cannot be fetched, differ from the published files, or do not fit on the disk.
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
