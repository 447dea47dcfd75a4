"""Uploads the Python environment and Spark's jars to HDFS, for nodes without dlobd. Each file is written once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from dlobd.errors import ClusterError
from dlobd.hadoop import webhdfs
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import Storage
from dlobd.hadoop.web import HadoopWeb
from dlobd.paths import plain, spark_home
from dlobd.run import packing
from dlobd.run.observer import Report
from dlobd.run.schedulers.base import PackedInstallation

REPORT_S = 2.0
"""Interval between two reports of an upload's progress."""


class Upload:
    """Uploads to one cluster.

    Args:
        top: the user's home directory in its HDFS.
    """

    def __init__(self, web: HadoopWeb, storage: Storage, top: str, report: Report) -> None:
        self._web = web
        self._storage = storage
        self._top = top
        self._report = report

    def installation(self, archive: Path | None) -> PackedInstallation:
        """Return the installation that nodes use, after it has been written to HDFS if necessary.

        Args:
            archive: the user's own packed environment.

        Raises:
            SetupError: the environment cannot be packed.
            ClusterError: HDFS refused.
        """
        what = "the Python environment"
        if archive:
            size_bytes = archive.stat().st_size
            name = packing.archive_name(archive)
            environment = self._cached(what, name, size_bytes, self._counted(what, size_bytes, _pieces(archive)))
        else:
            environment = self._cached_tarball(what, packing.environment())
        libs = self._cached_tarball("Spark's jars", packing.spark_libs(spark_home() / "jars"))
        uri = self._web.conf.fs_uri
        return PackedInstallation(
            environment=f"{uri}{environment}#{packing.ENVIRONMENT}",
            python=f"./{packing.ENVIRONMENT}/bin/python",
            spark_libs=f"{uri}{libs}",
            package=plain(packing.package()),
        )

    def _cached_tarball(self, what: str, tarball: packing.Tarball) -> str:
        pieces = self._counted(what, tarball.size_bytes, tarball.chunks())
        if tarball.name.endswith(".gz"):
            what, pieces = f"{what}, compressed on its way", packing.compressed(pieces)
        return self._cached(what, tarball.name, tarball.size_bytes, pieces)

    def _cached(self, what: str, name: str, size_bytes: int, pieces: Iterator[bytes]) -> str:
        """Return the path of a file in HDFS, after writing `pieces` to it if it does not exist."""
        path = f"{self._top}/dlobd/cache/{name}"
        part = f"{path}.{socket.gethostname()}-{time.time_ns()}.part"
        client = webhdfs.connect(self._web.webhdfs_url, self._web.user, timed=False)
        try:
            if not self._storage.exists(path):
                self._report(f"uploading {what}, {size_bytes / 1e6:.0f} MB, once: {self._web.conf.fs_uri}{path}")
                client.write(part, data=pieces)
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

    def _counted(self, what: str, size_bytes: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, and report the progress."""
        done, reported_s = 0, time.monotonic()
        for piece in pieces:
            if time.monotonic() - reported_s > REPORT_S:
                reported_s = time.monotonic()
                self._report(f"uploading {what}: {done / 1e6:.0f} of {size_bytes / 1e6:.0f} MB")
            done += len(piece)
            yield piece


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(packing.PIECE_BYTES):
            yield piece
