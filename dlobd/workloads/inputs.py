"""The two ways in which a trainer gets its batches, behind one call.

    feed    Spark reads HDFS; the launcher's queue delivers blocks of records
    read    the trainer reads its own file, from HDFS by WebHDFS, in a tf.data pipeline that prefetches

Both give rank r block t of file r as its batch t, so that a seeded run trains on the same batches in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlobd import trace
from dlobd.datasets.tfrecord import decode_block
from dlobd.launchers.base import Node
from dlobd.workloads.job import Job

PREFETCH = 8
"""Batches that wait decoded for the step loop."""

Batch = tuple[Any, Any]
"""Images [n, image_values] in [0, 1] and labels [n], as tensors."""


def batches(tf: Any, job: Job, node: Node) -> Iterator[Batch]:
    """This rank's batches of all epochs, in their order."""
    if job.input == "read":
        return _read(tf, job, node.rank)
    return _feed(tf, job, node)


def _feed(tf: Any, job: Job, node: Node) -> Iterator[Batch]:
    if node.feed is None:
        raise ValueError(f'launcher {job.launcher!r} does not feed; use input = "read"')
    while block := node.feed.next_block():
        with trace.span("tensorflow", "decode"):
            images, labels = decode_block(block, job.layout)
            batch = tf.constant(images), tf.constant(labels)
        yield batch


def _read(tf: Any, job: Job, rank: int) -> Iterator[Batch]:
    layout = job.layout
    path = f"{job.train_dir}/part-{rank:05d}.tfrecord"

    def decoded() -> Iterator[Any]:  # runs in a thread of tf.data
        storage = job.storage()
        for _ in range(job.epochs):
            for block in storage.stream(path, job.batch_size * layout.record_bytes, "input"):
                with trace.span("tensorflow", "decode"):
                    batch = decode_block(block, layout)
                yield batch

    with trace.span("tensorflow", "build pipeline"):
        signature = (tf.TensorSpec([None, job.image_values], tf.float32), tf.TensorSpec([None], tf.int32))
        iterator = iter(tf.data.Dataset.from_generator(decoded, output_signature=signature).prefetch(PREFETCH))
    while True:
        with trace.span("tensorflow", "next batch", {"waits_for": ["@reader"]}):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch
