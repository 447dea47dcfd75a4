"""Puts a data set into HDFS, or a local directory, in the form a job reads: one TFRecord file a worker, all equal.

Each is smaller than an HDFS block. What is there already is used again: the directory's name holds everything its
content depends on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd.errors import ClusterError
from dlobd.hadoop.checksum import OneBlockChecksum
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import LocalDirectory, Storage
from dlobd.hadoop.webhdfs import words
from dlobd.job.datasets import tfrecord
from dlobd.job.datasets.base import Dataset, Split, layout_of, partition
from dlobd.job.datasets.tfrecord import Layout
from dlobd.job.description import STAGED, part_name
from dlobd.registry import DATASETS
from dlobd.schema import Experiment
from dlobd.tracing import names

FORMAT = 1
"""Raised whenever the files' content changes for equal parameters."""

MIN_BLOCK_BYTES = 1 << 20
"""HDFS refuses smaller blocks (dfs.namenode.fs-limits.min-block-size)."""


PIECE_BYTES = 8 << 20
"""What is encoded and written at once: the data set need not fit into memory."""


@dataclass(frozen=True, slots=True)
class StagedData:
    """Where the data lies in its storage."""

    train_dir: str
    test_path: str
    layout: Layout
    bytes: int
    reused: bool


def directory(experiment: Experiment) -> str:
    """The data set's directory in its storage, below the storage's own top."""
    e = experiment
    name = f"{e.dataset}-v{FORMAT}-w{e.workers}-n{e.train_samples}-t{e.test_samples}-s{e.seed}-r{e.replication}"
    return f"/dlobd/data/{name}"


def stage(experiment: Experiment, storage: Storage, top: str, progress: Callable[[str], None]) -> StagedData:
    """Writes the training and test files unless they are there.

    Args:
        top: what every path begins with: nothing in the embedded HDFS, else a directory of dlobd's.

    Raises:
        SetupError: a data file is missing or damaged.
        ClusterError: the storage refused, or what is there is damaged.
    """
    dataset = DATASETS.get(experiment.dataset)()
    layout = layout_of(dataset)
    base = top + directory(experiment)
    try:
        reused = storage.exists(f"{base}/{STAGED}")
        if not reused:
            _write(dataset, experiment, storage, base, progress)
        sizes = storage.sizes(f"{base}/train")
    except failures() as error:
        where = "This machine's disk" if isinstance(storage, LocalDirectory) else "HDFS"
        remedy = "check `dlobd cluster status`" if not top else f"check the free space and your permissions in {top}"
        raise ClusterError(f"{where} refused to store the data set: {words(error)}", remedy) from error
    local = isinstance(storage, LocalDirectory)
    ours = local or not top  # and `dlobd clean` removes it
    remove = "`dlobd clean --yes`" if ours else f"`hdfs dfs -rm -r {base}`"
    _check(sizes, experiment, layout.record_bytes, f"{base}/train", local, remove)
    return StagedData(f"{base}/train", f"{base}/test.tfrecord", layout, sum(sizes.values()), reused)


class _File:
    """One file of records, encoded piece by piece while it is written: anew where a write begins anew.

    Args:
        order: the positions of its samples in the split.
    """

    def __init__(self, dataset: Dataset, split: Split, order: NDArray[Any]) -> None:
        self._dataset = dataset
        self._split = split
        self._order = order
        self._layout = layout_of(dataset)
        self.bytes = len(order) * self._layout.record_bytes
        self.checksum = OneBlockChecksum()

    def __iter__(self) -> Iterator[bytes]:
        self.checksum = OneBlockChecksum()
        samples = max(1, PIECE_BYTES // self._layout.record_bytes)
        for images, labels in self._dataset.chunks(self._split, self._order, samples):
            piece = tfrecord.encode(images, labels, self._layout)
            self.checksum.add(piece)
            yield piece


def _write(
    dataset: Dataset, experiment: Experiment, storage: Storage, base: str, progress: Callable[[str], None]
) -> None:
    """All files of a data set; the last one says that the others are whole."""
    e = experiment
    orders = partition(dataset.train_size, e.workers, e.seed, e.train_samples, dataset.permutes)
    files = {f"{base}/train/{part_name(i)}": _File(dataset, "train", order) for i, order in enumerate(orders)}
    files[f"{base}/test.tfrecord"] = _File(dataset, "test", np.arange(e.test_samples))
    checksums = {}
    for path, file in files.items():
        progress(f"{path} ({file.bytes / 1e6:.1f} MB)")
        # one block a file, so that Spark makes one partition of it
        block_bytes = max(MIN_BLOCK_BYTES, -(-(file.bytes + 1) // 512) * 512)
        storage.write(path, file, names.DATA_SET, block_bytes)
        checksums[path] = file.checksum.hexdigest()
    # what HDFS should say of them: an audit asks it after each run
    storage.write(f"{base}/{STAGED}", json.dumps(checksums).encode(), names.DATA_SET)


def _check(
    sizes: Mapping[str, int], experiment: Experiment, record_bytes: int, directory: str, local: bool, remove: str
) -> None:
    """Refuses files of unequal length: ranks would wait for a collective that the shortest one never enters."""
    each = experiment.train_samples // experiment.workers
    wanted = {part_name(i): each * record_bytes for i in range(experiment.workers)}
    for name in sorted(sizes.keys() | wanted.keys()):
        if sizes.get(name) != wanted.get(name):
            holds = f"holds {sizes[name] / record_bytes:g} records" if name in sizes else "is missing"
            expected = f"{each if name in wanted else 'none'} expected"
            raise ClusterError(
                f"The data set{'' if local else ' in HDFS'} is damaged: {directory}/{name} {holds}, {expected}.",
                f"remove it with {remove}; the next run writes it again",
            )
