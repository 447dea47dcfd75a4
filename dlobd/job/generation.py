"""Files of a data set, and the Spark job that generates a data set without source files, with one task per file.

A part needs only a data set and a storage, so any process can write any part: the staging command, or a process on a
node. Each task writes its file piece by piece into the storage, so that no process holds more than a piece, and returns
the checksum. The driver then writes a last file with all checksums. Without this file, the data set counts as absent.
"""

import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Self

from dlobd import spans as kinds
from dlobd.errors import SetupError
from dlobd.hadoop.checksum import FileChecksum
from dlobd.hadoop.file_system import LocalDirectory, Storage, WebHdfs
from dlobd.job.datasets import tfrecord
from dlobd.job.datasets.base import Dataset, Order, Split, chunks_of, dataset_of, described, layout_of, partition
from dlobd.job.description import STAGED, part_name
from dlobd.job.launchers.failure import cause_of
from dlobd.schema import Experiment

MIN_BLOCK_BYTES = 1 << 20
"""Smallest block size that HDFS accepts (dfs.namenode.fs-limits.min-block-size)."""

PIECE_BYTES = 8 << 20
"""Size of a piece, the unit of encoding and writing: the data set need not fit into memory."""


class Part:
    """File of records, encoded piece by piece during each write.

    Args:
        order: positions of the file's samples in the split.
        block_size_mb: size of the file's blocks in HDFS; 0: the file is one block.
    """

    def __init__(self, dataset: Dataset, split: Split, order: Order, block_size_mb: int = 0) -> None:
        self._dataset = dataset
        self._split = split
        self._order = order
        self._layout = layout_of(dataset)
        self.bytes = len(order) * self._layout.record_bytes
        self.block_bytes = block_size_mb << 20 or max(MIN_BLOCK_BYTES, -(-(self.bytes + 1) // 512) * 512)
        self.checksum = FileChecksum(self.block_bytes)

    def __iter__(self) -> Iterator[bytes]:
        self.checksum = FileChecksum(self.block_bytes)
        samples = max(1, PIECE_BYTES // self._layout.record_bytes)
        done = 0
        for images, labels in chunks_of(self._dataset, self._split, self._order, samples):
            try:
                piece = tfrecord.encode(images, labels, self._layout)
            except tfrecord.BadSample as error:
                sample = int(self._order[done + error.at])
                raise SetupError(
                    f"Data set {described(self._dataset)}, {self._split} sample {sample}: {error}."
                ) from error
            done += len(images)
            self.checksum.add(piece)
            yield piece


def write_part(part: Part, storage: Storage, path: str) -> str:
    """Write a part; return the checksum that HDFS should report.

    Raises:
        SetupError: a file of the data set is missing or damaged, or a sample contradicts the data set's properties.
        HdfsError, OSError: the storage refused the write.
    """
    storage.write(path, part, kinds.DATA_SET, part.block_bytes)
    return part.checksum.hexdigest()


@dataclass(frozen=True, slots=True)
class Request:
    """Input of the job: the experiment with the data set, and the target directory."""

    experiment: Experiment
    base: str
    webhdfs_url: str  # empty: the storage is directories that all nodes share
    user: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: str) -> Self:
        values = json.loads(Path(path).read_text())
        return cls(**values | {"experiment": Experiment(**values["experiment"])})

    def storage(self) -> Storage:
        e = self.experiment
        return WebHdfs(self.webhdfs_url, self.user, e.replication) if self.webhdfs_url else LocalDirectory()


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a task, with the file that it wrote."""

    path: str
    checksum: str
    peak_bytes: int  # peak resident memory of the task's Python worker
    failure: str = ""  # cause, if the file could not be written; else empty


def parts_of(experiment: Experiment, base: str) -> dict[str, Part]:
    """Map the path of each file of a data set to its content: one file per worker, and the test set."""
    e = experiment
    dataset = dataset_of(e)
    orders = partition(dataset.train_size, e.workers, e.seed, e.train_samples, dataset.permutes)
    parts = {
        f"{base}/train/{part_name(i)}": Part(dataset, "train", order, e.block_size_mb) for i, order in enumerate(orders)
    }
    parts[f"{base}/test.tfrecord"] = Part(dataset, "test", range(e.test_samples))
    return parts


def write_checksums(storage: Storage, base: str, checksums: dict[str, str]) -> None:
    """Write the last file: the checksums that HDFS should report. A check compares them after each run."""
    storage.write(f"{base}/{STAGED}", json.dumps(checksums).encode(), kinds.DATA_SET)


def run(file: str) -> None:
    """Generate the data set of the request in `file`. Raises RuntimeError if a task cannot write its file."""
    from pyspark import SparkConf, SparkContext

    request = Request.read(file)
    files = len(parts_of(request.experiment, request.base))
    sc = SparkContext(conf=SparkConf().setAppName(f"dlobd data set {request.experiment.dataset}"))
    try:
        written: list[Written] = sc.parallelize(range(files), files).map(partial(write, request)).collect()
    finally:
        sc.stop()
    if failures := [file.failure for file in written if file.failure]:
        raise RuntimeError(failures[0])
    print(f"peak of a Python worker: {max(file.peak_bytes for file in written)} bytes", flush=True)
    write_checksums(request.storage(), request.base, {file.path: file.checksum for file in written})


def write(request: Request, number: int) -> Written:
    """Write the file with index `number`, as a Spark task."""
    path, part = list(parts_of(request.experiment, request.base).items())[number]
    try:
        checksum, failure = write_part(part, request.storage(), path), ""
    except Exception as error:  # noqa: BLE001  returned, because Spark would wrap it in its stack trace
        checksum, failure = "", f"{path}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return Written(path, checksum, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, failure)


def main(argv: list[str]) -> int:
    """Run jobs/generate.py; return the exit code. The cause of a failure is one line on stderr."""
    try:
        run(argv[0])
    except Exception as error:  # noqa: BLE001  the cause of any error must reach the user in one line
        print(f"{kinds.JOB_FAILED_LINE}{cause_of(error)}", file=sys.stderr, flush=True)
        return 1
    return 0
