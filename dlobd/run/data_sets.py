"""Data sets on this machine: which are there, where, and how one that does not come with dlobd is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dlobd.axes import DATASETS
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.experiment.files import load
from dlobd.job.datasets import cifar10, own
from dlobd.job.datasets.base import dataset_of
from dlobd.paths import locked
from dlobd.registry import unknown
from dlobd.run import archives
from dlobd.run.archives import Member
from dlobd.run.download import Patience, Remote, check, download


@dataclass(frozen=True, slots=True)
class Published:
    """A data set that can be fetched.

    Args:
        folder: its name in a data folder.
        archive: file name of its archive, a .tar.gz; with `remote`, where its authors have it.
        inside: the directory in the archive, or beside it, that holds the members.
    """

    folder: str
    archive: str
    remote: Remote
    inside: str
    members: tuple[Member, ...]

    @property
    def bytes(self) -> int:
        """Of all members."""
        return sum(member.bytes for member in self.members)


PUBLISHED = {
    "cifar10": Published(
        cifar10.FOLDER,
        "cifar-10-binary.tar.gz",
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"
        ),
        "cifar-10-batches-bin",
        tuple(Member(b.name, b.bytes, b.md5) for batches in cifar10.WHOLE.values() for b in batches),
    )
}
"""Name of a data set to what is published of it."""

State = Literal["whole", "partial", "missing", "generated"]


@dataclass(frozen=True, slots=True)
class Found:
    """A data set on this machine. `where` is its folder; `why` says what to do where it is missing."""

    name: str
    state: State
    bytes: int
    where: Path | None
    why: str = ""


def found() -> list[Found]:
    """All data sets; no file is opened."""
    return [_found(name) for name in DATASETS.names()]


def _found(name: str) -> Found:
    row = DATASETS.row(name)
    if why := row.reason():
        return Found(name, "missing", 0, None, why)
    try:
        files = own.files(dataset_of(replace(load("softmax-mnist"), dataset=name)))
    except DlobdError as error:  # another package's
        return Found(name, "missing", 0, None, error.what)
    if not files:
        return Found(name, "generated", 0, None)
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        again = f"; dlobd data fetch {name}" if name in PUBLISHED else ""
        return Found(name, "missing", 0, files[0].parent, f"it lacks {', '.join(missing)}{again}")
    size = sum(path.stat().st_size for path in files)
    return Found(name, "partial" if row.part_of else "whole", size, files[0].parent)


def published(name: str) -> Published:
    """What is published of a data set.

    Raises:
        UsageError: there is nothing to be fetched of that name.
    """
    if name not in PUBLISHED:
        if name in DATASETS.names() and (whole := DATASETS.row(name).part_of):
            raise UsageError(f"{name} is a part of {whole}, and comes with a checkout.", f"dlobd data fetch {whole}")
        if name in DATASETS.names():
            raise UsageError(f"{name} need not be fetched.", "dlobd data list")
        raise UsageError(unknown("data set to fetch", name, PUBLISHED), "dlobd data list")
    return PUBLISHED[name]


def fetch(
    what: Published, source: str | None, top: Path, progress: Callable[[str], None], patience: Patience | None = None
) -> Path:
    """Puts all files of a data set into its folder below `top`, each checked; returns the folder.

    Args:
        source: the URL of its archive, or of a directory of it, which ends with "/"; or the archive, or a directory
            with it or with its members, on this machine. None: its authors' site.

    Raises:
        UsageError: `source` is none of these.
        SetupError: it could not be fetched, is not what is published, or there is no room for it.
    """
    folder = top / what.folder
    with locked(folder / ".lock"):
        if not (lacking := _lacking(what, folder)):
            progress(f"all files are in {folder} already")
            return folder
        for stale in folder.glob(".*.bin.*"):  # of a command that was killed: we hold the lock
            stale.unlink()
        local = Path(source).expanduser() if source else None
        if local and local.exists():
            _from_disk(what, local, folder, lacking, progress)
        elif source is None or source.startswith(("http://", "https://")):
            _from_site(what, source, folder, progress, patience)
        else:
            raise UsageError(
                f"--from {source} is neither a file or directory nor an http URL.",
                f"--from {what.remote.url}, or a directory that holds {what.archive}",
            )
    return folder


def _lacking(what: Published, folder: Path) -> list[Member]:
    """Members that are not in the folder as they should be."""

    def right(member: Member) -> bool:
        path = folder / member.name
        if not path.is_file() or path.stat().st_size != member.bytes:
            return False
        with suppress(SetupError):
            check(path, Remote("", member.bytes, member.md5), member.name, "")
            return True
        return False

    return [member for member in what.members if not right(member)]


def _from_disk(
    what: Published, source: Path, folder: Path, lacking: list[Member], progress: Callable[[str], None]
) -> None:
    archive = source / what.archive if source.is_dir() else source
    remedy = f"--from a directory that holds {what.archive} of {what.remote.url}"
    _need_room(folder, what.bytes)
    if archive.is_file():
        progress(f"unpacking {archive}")
        try:
            check(archive, what.remote, f"the archive {archive}", remedy)
        except OSError as error:
            raise SetupError(f"{archive} cannot be read: {error.strerror}.", remedy) from error
        archives.unpack(archive, what.inside, what.members, folder, remedy)
        return
    below = source / what.inside
    batches = below if below.is_dir() else source
    if not any((batches / member.name).is_file() for member in what.members):
        raise SetupError(f"{source} holds neither {what.archive} nor {what.members[0].name}.", remedy)
    for member in lacking:
        progress(f"copying {batches / member.name}")
        try:
            with (batches / member.name).open("rb") as file:
                wrong = archives.copy(file, member, folder)
        except OSError as error:
            raise SetupError(f"{batches / member.name} cannot be copied: {error.strerror}.", remedy) from error
        if wrong:
            raise SetupError(f"The files in {batches} are not the published ones: {wrong}.", remedy)


def _from_site(
    what: Published, url: str | None, folder: Path, progress: Callable[[str], None], patience: Patience | None
) -> None:
    archive = folder / what.archive
    remote = what.remote if url is None else replace(what.remote, url=url + what.archive * url.endswith("/"))
    remedy = (
        "check the network and the proxy settings, or fetch the archive elsewhere and use --from with its directory"
    )
    if not archive.exists():
        _need_room(folder, what.bytes + remote.bytes)
        download(remote, archive, remedy, progress, patience)
    progress(f"unpacking {archive.name}")
    check(archive, remote, f"the archive {archive}", "run the same command again", discard=True)
    archives.unpack(archive, what.inside, what.members, folder, remedy)
    archive.unlink()


def _need_room(folder: Path, size: int) -> None:
    if (free := shutil.disk_usage(folder).free) < size:
        raise SetupError(
            f"{folder} has {free / 1e6:.0f} MB free, and {size / 1e6:.0f} MB are needed.",
            "free some space, or use --to with another directory",
        )
