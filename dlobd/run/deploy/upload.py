"""What nodes without dlobd get: the Python environment and Spark's jars, as files in HDFS, each written once."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dlobd.errors import ClusterError
from dlobd.hadoop import webhdfs
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import Storage
from dlobd.hadoop.web import HadoopWeb
from dlobd.paths import plain, spark_home
from dlobd.run import packing
from dlobd.run.deploy.base import Progress
from dlobd.run.schedulers.base import PackedInstallation

TELL_S = 2.0
"""An upload says this often how far it is."""


class Upload:
    """To one cluster.

    Args:
        top: the user's home directory there.
    """

    def __init__(self, web: HadoopWeb, storage: Storage, top: str, progress: Progress) -> None:
        self._web = web
        self._storage = storage
        self._top = top
        self._progress = progress

    def installation(self, archive: Path | None) -> PackedInstallation:
        """What the nodes are to use; written to HDFS if it is not there.

        Args:
            archive: the user's own packed environment.

        Raises:
            SetupError: the environment cannot be packed.
            ClusterError: HDFS refused.
        """
        what = "the Python environment"
        if archive:
            size_bytes = archive.stat().st_size
            environment = self._cached(
                what,
                packing.archive_name(archive),
                size_bytes,
                lambda: self._told(what, size_bytes, _pieces(archive)),
            )
        else:
            environment = self._cached_tarball(what, packing.environment())
        libs = self._cached_tarball("Spark's jars", packing.spark_libs(spark_home() / "jars"))
        uri = self._web.conf.fs_uri
        name = packing.ENVIRONMENT
        return PackedInstallation(
            environment=f"{uri}{environment}#{name}",
            python=f"./{name}/bin/python",
            spark_libs=f"{uri}{libs}",
            package=plain(packing.package()),
        )

    def _cached_tarball(self, what: str, tarball: packing.Tarball) -> str:
        name, size_bytes = tarball.name, tarball.size_bytes
        if not name.endswith(".gz"):
            return self._cached(what, name, size_bytes, lambda: self._told(what, size_bytes, tarball.chunks()))
        told = f"{what}, compressed on its way"
        return self._cached(
            told, name, size_bytes, lambda: packing.compressed(self._told(what, size_bytes, tarball.chunks()))
        )

    def _cached(self, what: str, name: str, size_bytes: int, pieces: Callable[[], Iterable[bytes]]) -> str:
        """The path in HDFS of what `name` names; written if it is not there."""
        path = f"{self._top}/dlobd/cache/{name}"
        part = f"{path}.{socket.gethostname()}-{time.time_ns()}.part"
        client = webhdfs.connect(self._web.webhdfs_url, self._web.user, timed=False)
        try:
            if not self._storage.exists(path):
                self._progress(f"uploading {what}, {size_bytes / 1e6:.0f} MB, once: {self._web.conf.fs_uri}{path}")
                client.write(part, data=iter(pieces()))
                try:
                    client.rename(part, path)
                except webhdfs.HdfsError:
                    if not self._storage.exists(path):  # else another command was faster
                        raise
        except failures() as error:
            remedy = "check its free space and quota, and your permissions there"
            raise ClusterError(f"HDFS did not take {path}: {' '.join(str(error).split())[:200]}", remedy) from error
        finally:
            try:
                client.delete(part)
            except failures():
                pass  # it is gone already, or HDFS is
        return path

    def _told(self, what: str, size_bytes: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, and every now and then how much they were."""
        done, told_s = 0, time.monotonic()
        for piece in pieces:
            if time.monotonic() - told_s > TELL_S:
                told_s = time.monotonic()
                self._progress(f"uploading {what}: {done / 1e6:.0f} of {size_bytes / 1e6:.0f} MB")
            done += len(piece)
            yield piece


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(packing.PIECE_BYTES):
            yield piece
