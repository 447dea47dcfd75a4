"""Puts a data set into HDFS, or a local directory, in the form a job reads: one TFRecord file a worker, all equal.

Each is smaller than an HDFS block. What is there already is used again: the directory's name holds everything its
content depends on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dlobd.errors import ClusterError
from dlobd.hadoop.checksum import one_block_checksum
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import LocalDirectory, Storage
from dlobd.hadoop.webhdfs import words
from dlobd.job.datasets import tfrecord
from dlobd.job.datasets.base import partition
from dlobd.job.description import STAGED, part_name
from dlobd.registry import DATASETS
from dlobd.schema import Experiment

FORMAT = 1
"""Raised whenever the files' content changes for equal parameters."""

MIN_BLOCK_BYTES = 1 << 20
"""HDFS refuses smaller blocks (dfs.namenode.fs-limits.min-block-size)."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Where the data lies in its storage."""

    train_dir: str
    test_path: str
    image_values: int
    classes: int
    bytes: int
    reused: bool


def directory(experiment: Experiment) -> str:
    """The data set's directory in its storage, below the storage's own top."""
    e = experiment
    name = f"{e.dataset}-v{FORMAT}-w{e.workers}-n{e.train_samples}-t{e.test_samples}-s{e.seed}-r{e.replication}"
    return f"/dlobd/data/{name}"


def stage(experiment: Experiment, storage: Storage, top: str, progress: Callable[[str], None]) -> Staged:
    """Writes the training and test files unless they are there.

    Args:
        top: what every path begins with: nothing in our own HDFS, else a directory of ours.

    Raises:
        SetupError: a data file is missing or damaged.
        ClusterError: the storage refused, or what is there is damaged.
    """
    dataset = DATASETS.get(experiment.dataset)()
    base = top + directory(experiment)
    values = math.prod(dataset.shape)
    try:
        reused = storage.exists(f"{base}/{STAGED}")
        if not reused:
            progress("encoding records")
            images, labels = dataset.load("train")
            parts = partition(images, labels, experiment.workers, experiment.seed, experiment.train_samples)
            files = {f"{base}/train/{part_name(i)}": tfrecord.encode(*part) for i, part in enumerate(parts)}
            images, labels = dataset.load("test")
            n = experiment.test_samples
            files[f"{base}/test.tfrecord"] = tfrecord.encode(images[:n], labels[:n])
            for path, data in files.items():
                progress(f"{path} ({len(data) / 1e6:.1f} MB)")
                # one block a file, so that Spark makes one partition of it
                block_bytes = max(MIN_BLOCK_BYTES, -(-(len(data) + 1) // 512) * 512)
                storage.write(path, data, "data set", block_bytes)
            # what HDFS should say of them: an audit asks it after each run
            checksums = {path: one_block_checksum(data) for path, data in files.items()}
            storage.write(f"{base}/{STAGED}", json.dumps(checksums).encode(), "data set")
        sizes = storage.sizes(f"{base}/train")
    except failures() as error:
        where = "This machine's disk" if isinstance(storage, LocalDirectory) else "HDFS"
        remedy = "look at `dlobd cluster status`" if not top else f"look at the free space and at your rights in {top}"
        raise ClusterError(f"{where} refused to store the data set: {words(error)}", remedy) from error
    _check(sizes, experiment, tfrecord.Layout(values).record_bytes, f"{base}/train", local=bool(top))
    return Staged(f"{base}/train", f"{base}/test.tfrecord", values, dataset.classes, sum(sizes.values()), reused)


def _check(sizes: Mapping[str, int], experiment: Experiment, record_bytes: int, directory: str, local: bool) -> None:
    """Refuses files of unequal length: ranks would wait for a collective that the shortest one never enters."""
    each = experiment.train_samples // experiment.workers
    wanted = {part_name(i): each * record_bytes for i in range(experiment.workers)}
    for name in sorted(sizes.keys() | wanted.keys()):
        if sizes.get(name) != wanted.get(name):
            holds = f"holds {sizes[name] / record_bytes:g} records" if name in sizes else "is missing"
            expected = f"{each if name in wanted else 'none'} expected"
            raise ClusterError(
                f"The data set{'' if local else ' in HDFS'} is damaged: {directory}/{name} {holds}, {expected}.",
                "remove it by `dlobd clean --yes`; the next run writes it again",
            )
