"""A data set that needs no files, made on the nodes: a Spark job of its own, one task a file.

Each task writes its file piece by piece into the storage, so that no process holds more than a piece, and returns the
checksum. The driver then writes the last file, which says that the others are whole: without it they count as absent.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dlobd import spans as kinds
from dlobd.hadoop.file_system import LocalDirectory, Storage, WebHdfs
from dlobd.job.datasets.base import dataset_of, partition
from dlobd.job.datasets.parts import Part, write_part
from dlobd.job.description import STAGED, part_name
from dlobd.schema import Experiment


@dataclass(frozen=True, slots=True)
class Request:
    """What the job is told: the data set of which experiment, and the directory that it goes to."""

    experiment: Experiment
    base: str
    webhdfs_url: str  # empty: the storage is directories that all nodes share
    user: str

    def to_json(self) -> str:
        """The form in which it is handed to spark-submit."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: str) -> Request:
        """Reads what `to_json` wrote."""
        values = json.loads(Path(path).read_text())
        return cls(**values | {"experiment": Experiment(**values["experiment"])})

    def storage(self) -> Storage:
        """Where the files go; a new connection."""
        if not self.webhdfs_url:
            return LocalDirectory()
        return WebHdfs(self.webhdfs_url, self.user, self.experiment.replication)


@dataclass(frozen=True, slots=True)
class Written:
    """What a task returns: its file."""

    path: str
    checksum: str
    peak_bytes: int  # resident, of the task's Python worker
    failed: str = ""  # why there is no such file


def parts_of(experiment: Experiment, base: str) -> dict[str, Part]:
    """Path to content of all files of a data set: one per worker, and the test set."""
    e = experiment
    dataset = dataset_of(e)
    orders = partition(dataset.train_size, e.workers, e.seed, e.train_samples, dataset.permutes)
    parts = {
        f"{base}/train/{part_name(i)}": Part(dataset, "train", order, e.block_size_mb) for i, order in enumerate(orders)
    }
    parts[f"{base}/test.tfrecord"] = Part(dataset, "test", range(e.test_samples))
    return parts


def note_whole(storage: Storage, base: str, checksums: dict[str, str]) -> None:
    """Writes the last file: what HDFS should say of the others, which an audit asks after each run."""
    storage.write(f"{base}/{STAGED}", json.dumps(checksums).encode(), kinds.DATA_SET)


def run(file: str) -> None:
    """Makes the data set that `file` describes.

    Raises:
        RuntimeError: a task could not write its file; one line.
    """
    from pyspark import SparkConf, SparkContext

    request = Request.read(file)
    files = len(parts_of(request.experiment, request.base))
    sc = SparkContext(conf=SparkConf().setAppName(f"dlobd data set {request.experiment.dataset}"))
    try:
        written: list[Written] = sc.parallelize(range(files), files).map(partial(write, request)).collect()
    finally:
        sc.stop()
    if failed := [one.failed for one in written if one.failed]:
        raise RuntimeError(failed[0])
    print(f"peak of a Python worker: {max(one.peak_bytes for one in written)} bytes", flush=True)
    note_whole(request.storage(), request.base, {one.path: one.checksum for one in written})


def write(request: Request, number: int) -> Written:
    """A task: writes one of the files."""
    path, part = list(parts_of(request.experiment, request.base).items())[number]
    try:
        checksum, failed = write_part(part, request.storage(), path), ""
    except Exception as error:  # noqa: BLE001  a value, so that Spark's stack does not surround it
        checksum, failed = "", f"{path}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return Written(path, checksum, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, failed)


def main(argv: list[str]) -> int:
    """Entry of jobs/generate.py. Returns the exit code; the cause of a failure is one line on stderr."""
    try:
        run(argv[0])
    except Exception as error:  # noqa: BLE001  whatever it was, its cause must reach the user in one line
        print(f"dlobd: job failed: {' '.join(str(error).split())[:500]}", file=sys.stderr, flush=True)
        return 1
    return 0
