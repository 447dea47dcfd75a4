"""What a job needs on nodes that have nothing of ours: the Python environment, dlobd itself and Spark's jars, packed.

The environment is a plain tarball of site-packages with a `bin/python` that looks for the node's own interpreter of
the same minor version. Archives of venv-pack and conda-pack work as well (`check_archive`); venv-pack does not make
ours: it copies the finder of an editable install with its absolute path, and finds the interpreter by path only.

Everything is named by the hash of what is in it, so that it is made and uploaded once. Tarballs are written as a
stream, straight into HDFS: no copy of gigabytes stays on this machine.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import shlex
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlobd.errors import SetupError, UsageError
from dlobd.paths import PACKAGE, cache_dir, make_writable

FORMAT = 1
"""Raised whenever an archive's content changes for equal packages."""

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"

PIECE_BYTES = 1 << 20

ENVIRONMENT = "environment"
"""The name under which containers see the unpacked environment."""

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
"""What a NodeManager unpacks."""

LEFT_OUT = ("dlobd", "pyspark", "tensorflow/include")
"""Below site-packages: dlobd and pyspark travel by themselves, and nobody compiles against TensorFlow on a node."""

# PYTHONPATH, not a virtual environment: that would hold the absolute path of the interpreter that made it. What Spark
# puts into PYTHONPATH comes first: its pyspark.zip, and dlobd's.
_LAUNCHER = """#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/lib/{python}/site-packages"
for found in {origin} {python}; do
  command -v "$found" >/dev/null 2>&1 && exec "$found" "$@"
done
echo "dlobd: job failed: node $(uname -n) has no {python}: neither {origin} nor {python} on its PATH" >&2
exit 127
"""


@dataclass(frozen=True, slots=True)
class Tarball:
    """An archive to be written: `files` are its members by their names, `scripts` the executable texts among them."""

    name: str
    files: Mapping[str, Path]
    scripts: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(path.lstat().st_size for path in self.files.values())

    def chunks(self) -> Iterator[bytes]:
        """The archive, uncompressed: gzip at its fastest level would take longer than the larger upload does.

        Raises:
            SetupError: a file cannot be read, or changed meanwhile.
        """
        for name, text in self.scripts.items():
            entry, data = tarfile.TarInfo(name), text.encode()
            entry.mode, entry.size = 0o755, len(data)
            yield entry.tobuf(tarfile.GNU_FORMAT) + _padded(data)
        # only makes the headers: a file with several names is stored once
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
    """The packages of the environment that runs this.

    Raises:
        SetupError: it cannot be packed.
    """
    site = Path(sysconfig.get_path("purelib"))
    origin = shlex.quote(f"{sys.base_prefix}/bin/{PYTHON}")
    launcher = _LAUNCHER.format(python=PYTHON, origin=origin)
    name = f"{ENVIRONMENT}-{_digest(launcher + _installed(site))}.tar"
    files = {f"lib/{PYTHON}/site-packages/{path.relative_to(site)}": path for path in _files(site)}
    return Tarball(name, files, {"bin/python": launcher})


def spark_libs(jars: Path) -> Tarball:
    """Spark's own jars, for spark.yarn.archive."""
    files = {path.name: path for path in sorted(jars.glob("*.jar"))}
    names = "\n".join(f"{name} {path.stat().st_size}" for name, path in files.items())
    return Tarball(f"spark-libs-{_digest(names)}.tar", files, {})


def archive_name(path: Path) -> str:
    """The name of a user's archive in the cluster: its content's hash, and the ending by which YARN unpacks it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{ENVIRONMENT}-{digest[:16]}{_ending(path)}"


def check_archive(path: Path) -> None:
    """A user's conda-pack or venv-pack archive: it must hold a Python of our minor version.

    Raises:
        UsageError: it does not, or is not an archive that YARN unpacks.
    """
    remedy = f"pack an environment with {PYTHON} by conda-pack or venv-pack"
    python, minors = False, set()
    if not _ending(path):
        raise UsageError(f"--archive {path} does not end in {', '.join(ARCHIVES)}: YARN would not unpack it.", remedy)
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
        raise UsageError(f"--archive {path} holds no bin/python.", remedy)
    if PYTHON not in minors:
        found = ", ".join(sorted(minors)) or "no Python library"
        raise UsageError(f"--archive {path} holds {found}, and this driver is {PYTHON}: they must be equal.", remedy)


def package() -> Path:
    """dlobd itself as a zip for --py-files, from a checkout as from a wheel."""
    top = PACKAGE
    files = [path for path in sorted(top.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = [path for path in files if "_shipped" not in path.relative_to(top).parts]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(top)}\n".encode() + file.read_bytes())
    path = cache_dir() / "packed" / f"dlobd-{digest.hexdigest()[:16]}.zip"
    if not path.exists():
        make_writable(path.parent)
        aside = path.with_suffix(".part")
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, f"dlobd/{file.relative_to(top)}")
        aside.replace(path)
    return path


def _installed(site: Path) -> str:
    """What is installed, by each package's own record of its files. Raises SetupError for what cannot travel."""
    lines = [f"format {FORMAT}"]
    for distribution in importlib.metadata.distributions(path=[str(site)]):
        name = distribution.metadata["Name"]
        if name == "dlobd":
            continue
        if json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
            raise SetupError(
                f"{name} is installed editable, so that its code is not in the environment to be packed.",
                f"install {name} without --editable, or bring an environment with --archive",
            )
        lines.append(f"{name} {distribution.version} {_digest(distribution.read_text('RECORD') or '')}")
    return "\n".join(sorted(lines))


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
                raise SetupError(f"{path} became shorter while it was packed.", "try again")
            left -= len(data)
            yield data if left else _padded(data, size)


def _padded(data: bytes, size: int | None = None) -> bytes:
    """The last piece of a member of `size` bytes, filled up to a whole block."""
    return data + bytes(-(len(data) if size is None else size) % tarfile.BLOCKSIZE)


def _files(site: Path) -> Iterator[Path]:
    left_out = {site / name for name in LEFT_OUT}
    for path in sorted(site.rglob("*")):
        top = path.relative_to(site).parts[0]
        if top.startswith(("__editable__", "dlobd-")) or left_out & {path, *path.parents}:
            continue
        if path.is_file() or path.is_symlink():
            yield path


def _names(path: Path) -> Iterator[str]:
    """The names in an archive, without unpacking more than needed."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from archive.namelist()
        return
    with tarfile.open(path, "r:*") as archive:
        yield from (entry.name for entry in archive)
