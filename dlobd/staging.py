"""Puts a data set into HDFS in the form a job reads: one TFRecord file a worker, all equal, each smaller than a block.

What is there already is used again: the directory's name holds everything its content depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlobd import webhdfs
from dlobd.datasets import tfrecord
from dlobd.datasets.base import partition
from dlobd.errors import ClusterError
from dlobd.registry import DATASETS
from dlobd.schema import Experiment

FORMAT = 1
"""Raised whenever the files' content changes for equal parameters."""

MIN_BLOCK_BYTES = 1 << 20
"""HDFS refuses smaller blocks (dfs.namenode.fs-limits.min-block-size)."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Where the data lies in HDFS."""

    train_dir: str
    test_path: str
    image_values: int
    classes: int
    bytes: int
    reused: bool


def directory(experiment: Experiment) -> str:
    """The data set's directory in HDFS."""
    e = experiment
    return f"/dlobd/data/{e.dataset}-v{FORMAT}-w{e.workers}-n{e.train_samples}-t{e.test_samples}-s{e.seed}"


def stage(experiment: Experiment, webhdfs_url: str, user: str, progress: Callable[[str], None]) -> Staged:
    """Uploads the training and test files unless they are there.

    Raises:
        SetupError: a data file is missing or damaged.
        ClusterError: HDFS refused.
    """
    dataset = DATASETS.get(experiment.dataset)()
    base = directory(experiment)
    client = webhdfs.connect(webhdfs_url, user)
    values = math.prod(dataset.shape)
    try:
        done = client.status(f"{base}/_SUCCESS", strict=False)
        if done is None:
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
                webhdfs.write(client, path, data, "data set", block_bytes)
            client.write(f"{base}/_SUCCESS", b"", overwrite=True)
        total = sum(status["length"] for _, status in client.list(f"{base}/train", status=True))
    except webhdfs.HdfsError as error:
        raise ClusterError(f"HDFS refused to store the data set: {error}", "look at `dlobd cluster status`") from error
    return Staged(f"{base}/train", f"{base}/test.tfrecord", values, dataset.classes, total, done is not None)
