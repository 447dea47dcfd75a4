"""Puts a data set into HDFS, or a local directory, in the form a job reads: one TFRecord file a worker, all equal.

Each is smaller than an HDFS block. What is there already is used again: the directory's name holds everything its
content depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlobd.datasets import tfrecord
from dlobd.datasets.base import partition
from dlobd.errors import ClusterError
from dlobd.registry import DATASETS
from dlobd.schema import Experiment
from dlobd.storage import Failures, Storage

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
    return f"/dlobd/data/{e.dataset}-v{FORMAT}-w{e.workers}-n{e.train_samples}-t{e.test_samples}-s{e.seed}"


def stage(experiment: Experiment, storage: Storage, top: str, progress: Callable[[str], None]) -> Staged:
    """Writes the training and test files unless they are there.

    Args:
        top: what every path begins with: nothing in HDFS, a directory of ours on this machine.

    Raises:
        SetupError: a data file is missing or damaged.
        ClusterError: the storage refused.
    """
    dataset = DATASETS.get(experiment.dataset)()
    base = top + directory(experiment)
    values = math.prod(dataset.shape)
    try:
        reused = storage.exists(f"{base}/_SUCCESS")
        if not reused:
            progress("encoding records")
            images, labels = dataset.load("train")
            parts = partition(images, labels, experiment.workers, experiment.seed, experiment.train_samples)
            files = {f"{base}/train/part-{i:05d}.tfrecord": tfrecord.encode(*part) for i, part in enumerate(parts)}
            images, labels = dataset.load("test")
            n = experiment.test_samples
            files[f"{base}/test.tfrecord"] = tfrecord.encode(images[:n], labels[:n])
            for path, data in files.items():
                progress(f"{path} ({len(data) / 1e6:.1f} MB)")
                # one block a file, so that Spark makes one partition of it
                block_bytes = max(MIN_BLOCK_BYTES, -(-(len(data) + 1) // 512) * 512)
                storage.write(path, data, "data set", block_bytes)
            storage.write(f"{base}/_SUCCESS", b"", "data set")
        total = sum(storage.sizes(f"{base}/train").values())
    except Failures as error:
        where = "This machine's disk" if top else "HDFS"
        remedy = "look at the free space and the rights of that directory" if top else "look at `dlobd cluster status`"
        raise ClusterError(f"{where} refused to store the data set: {error}", remedy) from error
    return Staged(f"{base}/train", f"{base}/test.tfrecord", values, dataset.classes, total, reused)
