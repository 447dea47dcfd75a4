"""Packs the files that nodes without dlobd need: the Python environment, dlobd itself and Spark's jars.

The environment is a tarball of packages with a `bin/python` that finds the node's own interpreter of the same minor
version. It contains
    - the packages that dlobd imports on nodes, with their requirements (`NODES`);
    - installed packages that are not dependencies of dlobd, because the user's model or job may need them.
Dependencies of dlobd's client and developers, for example pandas and matplotlib, are left out unless a package of the
second kind requires them. A user who needs them on nodes supplies an archive of venv-pack or conda-pack
(`check_archive`). dlobd does not use venv-pack, because venv-pack copies the finder of an editable install with its
absolute path, and finds the interpreter only by path.

Archives are named by the hash of their content, so that each archive is made and uploaded once. Tarballs are streamed
to HDFS without a local copy of gigabytes.
"""

import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from dlobd import installation
from dlobd.errors import SetupError, UsageError
from dlobd.paths import PACKAGE, cache_dir, make_writable, sha256_of
from dlobd.spans import JOB_FAILED_LINE

FORMAT = 4
"""Version of the archives' layout. It changes their names, so that old archives are not reused."""

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"

PIECE_BYTES = 1 << 20

ENVIRONMENT = "environment"
"""Name of the unpacked environment in containers."""

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
"""Suffixes of archives that a NodeManager unpacks."""

NODES = (
    *("hdfs", "numpy", "requests", "spark-tensorflow-distributor", "tensorflow", "tensorflowonspark", "urllib3"),
    *("cffi", "grpcio", "mpi4py", "mpich", "psutil"),  # libraries of the channels, and their C interfaces
)
"""The distributions that dlobd's modules import on nodes. TensorFlow requires keras: a model may use tf.keras."""

APART = {"dlobd", "py4j", "pyspark"}
"""Packages that reach nodes by --py-files or with Spark."""

BUILD = {"libclang", "pip", "setuptools", "wheel"}
"""Build and installation tools. Packages such as TensorFlow require some of these tools, but no package of NODES
imports them. `launchers.tfos_compat` replaces pkg_resources for TensorFlowOnSpark, because newer setuptools lack it."""

BUILD_FILES = re.compile(r"tensorflow/include/|.*\.(pyi|pxd|h|hpp|cc|a)$|.*/tests/")
"""Headers, type stubs and tests, which dlobd's dependencies do not import. Other packages keep these files:
astropy imports its tests, and lazy_loader reads stubs."""

UNUSED_JARS = re.compile(
    r"""(spark-)?kubernetes|volcano-|vertx-                    # another scheduler, and its HTTP client
    |spark-(connect|pipelines|repl)_|scala-compiler-           # Spark's other front ends
    |(spark-)?hive-(?!storage-api)|spark-hive_|datanucleus-|derby  # Hive's metastore; ORC files need its storage-api
    |rocksdbjni-                                               # on-disk state of streams, history and shuffle servers
    """,
    re.VERBOSE,
)
"""Jars of Spark that YARN applications with RDDs, SQL and MLlib do not need: other classes load them only for these
features. Spark can also be built without these jars, except for the last jar and the compiler."""

# PYTHONPATH instead of a virtual environment, which contains the absolute path of its interpreter. Spark's entries come
# first: pyspark.zip and dlobd's zip.
_LAUNCHER = """#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/lib/{python}/site-packages"
for found in {origin} {python}; do
  command -v "$found" >/dev/null 2>&1 && exec "$found" "$@"
done
echo "{failed}node $(uname -n) has no {python}: neither {origin} nor {python} on its PATH" >&2
exit 127
""".replace("{failed}", JOB_FAILED_LINE)


@dataclass(frozen=True, slots=True)
class Tarball:
    """Archive to be written. `files` are its members by name; `scripts` are executable texts by name."""

    name: str
    files: Mapping[str, Path]
    scripts: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        return sum(path.lstat().st_size for path in self.files.values())

    def chunks(self) -> Iterator[bytes]:
        """Yield the uncompressed archive. Raises SetupError if a file cannot be read or has changed."""
        for name, text in self.scripts.items():
            entry, data = tarfile.TarInfo(name), text.encode()
            entry.mode, entry.size = 0o755, len(data)
            yield entry.tobuf(tarfile.GNU_FORMAT) + _padded(data)
        # used for headers only; hard links are stored once
        headers = tarfile.TarFile(fileobj=io.BytesIO(), mode="w")
        for name, path in self.files.items():
            try:
                entry = headers.gettarinfo(path, name)
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                yield entry.tobuf(tarfile.GNU_FORMAT)
                if entry.isreg():
                    yield from _content(path, entry.size)
            except OSError as error:
                raise SetupError(f"{path} cannot be packed: {error.strerror}.", "try again") from error
        yield bytes(2 * tarfile.BLOCKSIZE)


def environment() -> Tarball:
    """Return the tarball of the current Python environment. Raises SetupError if it cannot be packed."""
    site = Path(sysconfig.get_path("purelib"))
    origin = shlex.quote(f"{sys.base_prefix}/bin/{PYTHON}")
    launcher = _LAUNCHER.format(python=PYTHON, origin=origin)
    needed = _needed(site)
    records = "\n".join([launcher, f"format {FORMAT}", *(_recorded(distribution) for distribution, _ in needed)])
    paths = [path for distribution, whole in needed for path in _files(distribution, site, whole)]
    files = {f"lib/{path.relative_to(site.parents[1])}": path for path in paths}
    return Tarball(f"{ENVIRONMENT}-{_digest(records)}.tar.gz", files, {"bin/python": launcher})


def on_nodes() -> set[str]:
    """Return the normalised names of the packages that a job finds on every node."""
    packed = _needed(Path(sysconfig.get_path("purelib")))
    return {normal(distribution.metadata["Name"]) for distribution, _ in packed} | APART


def packages(directory: Path) -> Tarball:
    """Return the tarball of the packages of a job, which `dlobd.run.overlay` installed."""
    files = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.is_file()}
    return Tarball(f"packages-{directory.parent.name}.tar.gz", files, {})


def spark_libs(jars: Path) -> Tarball:
    """Return the tarball of Spark's jars, for spark.yarn.archive."""
    files = {path.name: path for path in sorted(jars.glob("*.jar")) if not UNUSED_JARS.match(path.name)}
    names = "\n".join(f"{name} {path.stat().st_size}" for name, path in files.items())
    return Tarball(f"spark-libs-{_digest(names)}.tar", files, {})


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress `chunks` as one gzip stream by ISA-L: four times as fast as zlib, about as fast as a disk."""
    from isal import isal_zlib

    stream = isal_zlib.compressobj(1, wbits=31)
    for chunk in chunks:
        if data := stream.compress(chunk):
            yield data
    yield stream.flush()


def archive_name(path: Path) -> str:
    """Return the name of a user's archive in the cluster: a hash of its content, and the suffix that YARN needs."""
    return f"{ENVIRONMENT}-{sha256_of(path)[:16]}{_ending(path)}"


def check_archive(path: Path) -> None:
    """Check that a user's conda-pack or venv-pack archive contains a Python of our minor version. Raises UsageError if
    it does not, or if YARN cannot unpack it."""
    remedy = f"pack an environment with {PYTHON} by conda-pack or venv-pack"
    python, minors = False, set()
    if not _ending(path):
        raise UsageError(f"--archive {path} does not end in {', '.join(ARCHIVES)}, so YARN does not unpack it.", remedy)
    try:
        for name in _names(path):
            parts = name.removeprefix("./").split("/")
            python = python or parts in (["bin", "python"], ["bin", PYTHON])
            if len(parts) > 2 and parts[0] == "lib" and parts[1].startswith("python3."):
                minors.add(parts[1])
            if python and minors:
                break
    except OSError as error:
        raise UsageError(f"--archive {path} cannot be read: {error.strerror or error}.", remedy) from None
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise UsageError(f"--archive {path} is not a .tar.gz or .zip: {error}.", remedy) from None
    if not python:
        raise UsageError(f"--archive {path} contains no bin/python.", remedy)
    if PYTHON not in minors:
        content = ", ".join(sorted(minors)) or "no Python library"
        raise UsageError(f"--archive {path} contains {content}, but the driver runs {PYTHON}: they must match.", remedy)


def package() -> Path:
    """Write dlobd as a zip for --py-files, from a checkout or a wheel; return its path."""
    files = installation.files()
    path = cache_dir() / "packed" / f"dlobd-{installation.digest(files)[:16]}.zip"
    if not path.exists():
        make_writable(path.parent)
        aside = path.with_suffix(".part")
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, f"dlobd/{file.relative_to(PACKAGE)}")
        aside.replace(path)
    return path


def _needed(site: Path) -> list[tuple[Distribution, bool]]:
    """Return the installed packages to pack. True marks a package whose files are all packed."""
    found = importlib.metadata.distributions(path=[str(site)])
    installed = {normal(each.metadata["Name"]): each for each in found if each.metadata["Name"]}
    requires = {name: _required(name, distribution) for name, distribution in installed.items()}
    brought = _reached({"dlobd"}, requires)
    needed = _reached(set(NODES), requires) - BUILD
    needed = _reached(installed.keys() - brought - BUILD, requires, needed) - APART
    return [(installed[name], name not in brought) for name in sorted(needed)]


def _reached(start: Set[str], requires: Mapping[str, Set[str]], known: Set[str] = frozenset()) -> set[str]:
    """Return the installed packages of `start` and all their requirements, except packages of `known`."""
    reached, left = set(known), set(start)
    while left:
        name = left.pop()
        if name in requires and name not in reached:
            reached.add(name)
            left |= requires[name]
    return reached


def _required(name: str, distribution: Distribution) -> set[str]:
    """Return the names of a package's requirements. Environment markers are ignored."""
    found = set()
    for requirement in distribution.requires or []:
        if name == "dlobd" or not re.search(r"\bextra\b", requirement.partition(";")[2]):
            found.add(normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0]))
    return found


def normal(name: str) -> str:
    """Return the normalised name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _recorded(distribution: Distribution) -> str:
    """Return a package's name, version and digest of its RECORD. Raises SetupError if it cannot be packed."""
    name = distribution.metadata["Name"]
    if json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        raise SetupError(
            f"{name} is an editable install: its code is not in the environment to be packed.",
            f"install {name} without --editable, or supply an environment with --archive",
        )
    if distribution.files is None:
        raise SetupError(
            f"{name} has no record of its files, so it cannot be packed.",
            f"install {name} with pip, or supply an environment with --archive",
        )
    return f"{name} {distribution.version} {_digest(distribution.read_text('RECORD') or '')}"


def _ending(path: Path) -> str:
    return next((ending for ending in ARCHIVES if path.name.endswith(ending)), "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _content(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as file:
        while left:
            data = file.read(min(left, PIECE_BYTES))
            if not data:
                raise SetupError(f"{path} shrank while it was being packed.", "try again")
            left -= len(data)
            yield data if left else _padded(data, size)


def _padded(data: bytes, size: int | None = None) -> bytes:
    return data + bytes(-(len(data) if size is None else size) % tarfile.BLOCKSIZE)


def _files(distribution: Distribution, site: Path, whole: bool) -> Iterator[Path]:
    """Return a package's files below `lib`, including compiled modules, because nodes would compile at every start."""
    for file in distribution.files or []:
        path = Path(os.path.normpath(site / file))
        stays = path.suffix == ".pyc" or (not whole and BUILD_FILES.match(str(file)))
        if stays or not path.is_relative_to(site.parents[1]):
            continue
        compiled = [Path(importlib.util.cache_from_source(path))] if path.suffix == ".py" else []
        yield from (found for found in (path, *compiled) if found.is_file())


def _names(path: Path) -> Iterator[str]:
    """Yield the names of an archive's members. The archive is unpacked only as far as the caller reads."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from archive.namelist()
        return
    with tarfile.open(path, "r:*") as archive:
        yield from (entry.name for entry in archive)
