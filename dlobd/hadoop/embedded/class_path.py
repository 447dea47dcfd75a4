"""The class path of the daemons, prepared once so that they start in half the time.

Three steps slow down the start of each daemon without being useful work:
- Jetty reads a jar of 56 MB entry by entry, to extract the few files of one web application;
- Jersey reads the jar again for each package in which it searches for resource classes;
- the JVM reads, verifies and links about 10,000 classes.
Therefore dlobd copies the large jar without the files for the first two steps, and writes these files into a small jar.
A class-data-sharing archive of the JVM contains the classes in their memory format; `bench/class_list.py` lists them.
"""

import copy
import gzip
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile, ZipInfo, is_zipfile

from dlobd.errors import SetupError
from dlobd.hadoop.embedded.java import Java
from dlobd.paths import cache_dir, locked, plain, shipped, spark_home

_FROM_PYSPARK = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "log4j-1.2-api",
    "jcl-over-slf4j",
)

_SPLIT = ("hadoop-client-minicluster-", "hadoop-client-api-")
"""Name prefixes of the jars that contain files of `_SCANNED`."""

_SCANNED = (
    "webapps/",
    "org/apache/hadoop/hdfs/server/namenode/web/resources/",
    "org/apache/hadoop/hdfs/web/resources/",
    "org/apache/hadoop/yarn/server/nodemanager/webapp/",
)
"""Web applications, and the packages that Jersey searches for NameNode and NodeManager."""

_LAYOUT = 1
"""Version of the prepared files."""

_SCANNED_JAR = "scanned.jar"
_ARCHIVE = "daemons.jsa"
_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""JVM options that map the archive at its original address, where daemons share its memory. A relocated archive needs
97 MB more per daemon."""

ARCHIVE_DEADLINE_S = 180
UNUSED_S = 30 * 86400
"""Age after which unused files are removed: they belong to a removed Java or pyspark."""


@dataclass(frozen=True, slots=True)
class ClassPath:
    """The jars of all daemons and the archive of their classes; `archive` is None if it could not be created."""

    jars: tuple[Path, ...]
    archive: Path | None = None

    def options(self, conf_dir: Path) -> list[str]:
        """Return the JVM's options for class path and shared class archive. The JVM ignores an unusable archive."""
        # the class path must begin with that of the archive, so the configuration comes last; no jar has a file of the
        # same name
        archive = [] if self.archive is None else [*_IN_PLACE, f"-XX:SharedArchiveFile={self.archive}"]
        return [*archive, "-cp", os.pathsep.join(str(entry) for entry in (*self.jars, conf_dir))]


def prepare(java: Java, jars: Sequence[Path], progress: Callable[[str], None]) -> ClassPath:
    """Return the daemons' class path: the four `jars` and eight of pyspark, prepared if possible.
    Raises SetupError if a jar of pyspark is missing."""
    originals = (*jars, *_from_pyspark())
    try:
        classes = gzip.decompress((shipped("yarn") / "daemon-classes.gz").read_bytes())
        # the JVM refuses an archive if size or time of a jar has changed
        files = [(str(path), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in originals]
        key = sha256(repr((_LAYOUT, str(java.home), java.version, files)).encode() + classes).hexdigest()[:16]
        directory = plain(cache_dir() / "daemons") / key
        with locked(directory.parent / ".lock"):
            return _prepared(directory, java, originals, classes, progress)
    except (OSError, SetupError) as error:
        progress(f"the daemons' jars could not be prepared, so start-up is slower: {error}")
        return ClassPath(originals)


def _prepared(
    directory: Path, java: Java, plain: Sequence[Path], classes: bytes, progress: Callable[[str], None]
) -> ClassPath:
    split = [path for path in plain if path.name.startswith(_SPLIT)]
    prepared = [directory / _SCANNED_JAR, *(directory / path.name for path in split)]
    jars = (prepared[0], *(directory / path.name if path in split else path for path in plain))
    archive = directory / _ARCHIVE
    if not all(is_zipfile(path) for path in prepared):
        _remove_unused(directory)
        _split(directory, split)
    if not archive.exists():
        progress("preparing the daemons' classes for faster start-up (once)")
        _make_archive(archive, java, jars, classes)
    os.utime(directory)
    # an empty archive means that this Java cannot create it
    return ClassPath(jars, archive if archive.stat().st_size else None)


def _from_pyspark() -> list[Path]:
    directory = spark_home() / "jars"
    entries = []
    for name in _FROM_PYSPARK:
        matches = sorted(directory.glob(f"{name}-[0-9]*.jar"))
        if not matches:
            raise SetupError(f"{name}-*.jar is missing from {directory}.", "install pyspark 4.3.0 again.")
        entries.append(matches[0])
    return entries


def _remove_unused(directory: Path) -> None:
    """Remove the incomplete `directory`, files of killed processes, and unused directories."""
    for other in directory.parent.iterdir():
        unused = other.name.startswith(".making-") or time.time() - other.stat().st_mtime > UNUSED_S
        if other.is_dir() and (unused or other == directory):
            shutil.rmtree(other)


def _split(directory: Path, sources: Sequence[Path]) -> None:
    """Create `directory` with copies of the jars without the scanned files, and a jar with these files."""
    aside = Path(tempfile.mkdtemp(prefix=".making-", dir=directory.parent))
    try:
        with ZipFile(aside / _SCANNED_JAR, "w") as scanned:
            for path in sources:
                with ZipFile(path) as source, ZipFile(aside / path.name, "w") as rest:
                    for entry in source.infolist():
                        into = scanned if entry.filename.startswith(_SCANNED) else rest
                        if entry.filename not in into.NameToInfo:  # Java uses the first of equal names on a class path
                            _copy(entry, source, into)
        aside.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy(entry: ZipInfo, source: ZipFile, into: ZipFile) -> None:
    """Copy a compressed entry unchanged, which is four times as fast as unpacking and packing."""
    read, write = source.fp, into.fp
    assert read is not None
    assert write is not None
    read.seek(entry.header_offset)
    name_bytes, extra_bytes = struct.unpack("<26x2H", read.read(30))
    read.seek(name_bytes + extra_bytes, os.SEEK_CUR)
    copied = copy.copy(entry)
    copied.header_offset = write.tell()
    copied.extra = b""
    copied.flag_bits &= ~8  # sizes and checksum are in the header, not after the data
    write.write(copied.FileHeader(zip64=False))
    write.write(read.read(entry.compress_size))
    into.start_dir = write.tell()
    into.filelist.append(copied)
    into.NameToInfo[copied.filename] = copied


def _make_archive(archive: Path, java: Java, jars: Sequence[Path], classes: bytes) -> None:
    """Let the JVM create the archive; create an empty file if the JVM cannot."""
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as name:
        listed, partial = Path(name) / "classes", Path(name) / _ARCHIVE
        listed.write_bytes(classes)
        command = [
            str(java.command),
            "-Xshare:dump",
            "-Xmx512m",
            "-XX:+UseSerialGC",  # as in the daemons, which cannot use archived objects of another collector
            f"-XX:SharedClassListFile={listed}",
            f"-XX:SharedArchiveFile={partial}",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]
        # omits JAVA_TOOL_OPTIONS and similar variables; LANG, for file names, is that of the daemons
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": os.environ.get("LANG", "C.UTF-8")}
        with (archive.parent / "archive.log").open("wb") as log:
            try:
                subprocess.run(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=ARCHIVE_DEADLINE_S,
                    check=True,
                )
            except subprocess.SubprocessError:
                partial.unlink(missing_ok=True)
        if not partial.exists():
            partial.touch()
        partial.rename(archive)
