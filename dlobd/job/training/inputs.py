"""Yields a trainer's batches from one of two sources.

    feed    Spark reads HDFS; the launcher's queue delivers blocks of records
    read    the trainer reads its own file from HDFS, through WebHDFS, in a tf.data pipeline that prefetches

With both sources, batch t of rank r is block t of file r: runs with the same seed train on the same batches in the same
order. Augmentation depends only on batch, seed and step, so that it is equal with both sources.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import AUGMENTATIONS
from dlobd.hadoop.failures import failures
from dlobd.job.datasets.tfrecord import Layout, checked_records, decode_block
from dlobd.job.description import Job, part_name
from dlobd.job.launchers.base import Node, recorded_reads
from dlobd.job.training.augmentation import Augment
from dlobd.network.exchanges.base import Tensor, TensorFlow

PREFETCH = 8  # number of decoded batches in reserve for the step loop

FEED_TIMEOUT_S = 60.0
"""Timeout for a trainer's next block. Spark reads a block in milliseconds, and from a slow HDFS in seconds."""

PIECE_BYTES = 1 << 20
"""Size of one read, rounded down to whole batches. TensorFlow calls Python for each read, and then holds the GIL."""

CHECK_S = 0.5  # interval between checks of a deadline, and therefore its largest delay

Batch = tuple[Tensor, Tensor]
"""Images [n, *image_shape] and labels [n], as tensors; see `dlobd.job.datasets.tfrecord.decode_block`."""


def batches(tf: TensorFlow, job: Job, node: Node, deadlines: "Deadlines") -> Iterator[Batch]:
    """Yield this rank's batches of all epochs, in order."""
    augment: Augment | None = AUGMENTATIONS.get(job.augment)
    if job.input == "read":
        return _read(tf, job, node.rank, augment)
    return _feed(tf, job, node, deadlines, augment)


def _feed(tf: TensorFlow, job: Job, node: Node, deadlines: "Deadlines", augment: Augment | None) -> Iterator[Batch]:
    if node.feed is None:
        raise ValueError(f'launcher {job.launcher!r} does not feed; use input = "read"')
    taken = 0
    if augment:
        augmented = tf.function(lambda images, batch, step: augment(tf, images, job.seed, batch, step))

    def stalled() -> str:
        return f"the feed stalled: no block came for {FEED_TIMEOUT_S:.0f} s, after {taken} of {job.most_steps} blocks"

    while True:
        with deadlines.within(FEED_TIMEOUT_S, stalled):
            block = node.feed.next_block()
        if not block:
            return
        taken += 1
        with tracing.span(kinds.DECODE):
            images, labels = decode_block(block, job.layout)
            batch = tf.constant(images), tf.constant(labels)
        if augment:
            with tracing.span(kinds.AUGMENT):
                first = int.from_bytes(block[job.layout.crc], "little")
                batch_id, step = tf.constant(first, tf.int64), tf.constant(taken - 1, tf.int64)
                batch = augmented(batch[0], batch_id, step), batch[1]
        yield batch


def _read(tf: TensorFlow, job: Job, rank: int, augment: Augment | None) -> Iterator[Batch]:
    layout = job.layout
    path = f"{job.train_dir}/{part_name(rank)}"
    batch_bytes = job.batch_size * layout.record_bytes
    piece_bytes = max(1, PIECE_BYTES // batch_bytes) * batch_bytes
    errors: list[Exception] = []

    def pieces() -> Iterator[bytes]:  # runs in a thread of tf.data, which competes with the step loop for the GIL
        storage = job.storage()
        try:
            for _ in range(job.fed_epochs):
                for piece in storage.stream(path, piece_bytes, kinds.INPUT):
                    with tracing.span(kinds.CHECK_RECORDS):
                        checked_records(piece, layout)
                    yield piece
        except failures() as error:
            errors.append(error)  # TensorFlow would wrap the error in its own error

    def batches(piece: Tensor) -> Tensor:
        records = tf.io.decode_raw(piece, tf.uint8)
        return tf.data.Dataset.from_tensor_slices(tf.reshape(records, [-1, job.batch_size, layout.record_bytes]))

    def plain(records: Tensor) -> Batch:
        return _decoded(tf, records, layout)

    def augmented(step: Tensor, records: Tensor) -> Batch:
        assert augment is not None
        images, labels = plain(records)
        first = tf.cast(tf.bitcast(records[0, layout.crc], tf.uint32), tf.int64)
        return augment(tf, images, job.seed, first, step), labels

    with tracing.span(kinds.BUILD_PIPELINE):
        read = tf.data.Dataset.from_generator(pieces, output_signature=tf.TensorSpec([], tf.string))
        records = read.flat_map(batches)
        decoded = records.enumerate().map(augmented) if augment else records.map(plain)
        options = tf.data.Options()
        # autotuning cannot improve this pipeline. The autotuning thread sleeps longer as the pipeline becomes older, up
        # to a minute. It may miss the wake-up at the end; then the trainer waits for the thread after its last step.
        options.autotune.enabled = False
        iterator = iter(decoded.prefetch(PREFETCH).with_options(options))
    yield from recorded_reads(iterator, kinds.NEXT_BATCH)
    if errors:
        raise errors[0]


def _decoded(tf: TensorFlow, records: Tensor, layout: Layout) -> Batch:
    """Decode checked records [n, record_bytes] like `decode_block`, with TensorFlow's operations."""
    images = records[:, layout.image.start : layout.image.stop]
    if layout.dtype == "uint8":
        values = tf.cast(images, tf.float32) / 255.0
    else:
        values = tf.bitcast(tf.reshape(images, [-1, layout.image_bytes // 4, 4]), tf.float32)
    labels = tf.cast(records[:, layout.label.start], tf.int32)
    if layout.label_bytes > 1:  # seven bits per byte, the lowest first
        sevens = tf.cast(records[:, layout.label.start : layout.label.stop] & 0x7F, tf.int32)
        labels = tf.reduce_sum(sevens * [1 << 7 * at for at in range(layout.label_bytes)], axis=1)
    return tf.reshape(values, [-1, *layout.shape]), labels


class Deadlines:
    """Deadlines of a trainer, whose main thread has at most one wait at a time.

    No exception can interrupt a wait inside third-party code, such as a queue's socket. So a thread checks the
    deadline, and calls `give_up` with the cause; `give_up` should not return.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up
        self._watched: tuple[float, Callable[[], str]] | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, cause: Callable[[], str]) -> Iterator[None]:
        """Call `give_up` unless the block ends within `seconds`. `cause` then returns the reason in one line."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="dlobd-deadline", daemon=True)
            self._thread.start()
        self._watched = time.monotonic() + seconds, cause
        try:
            yield
        finally:
            self._watched = None

    def _watch(self) -> None:
        while True:
            time.sleep(CHECK_S)
            watched = self._watched
            if watched and time.monotonic() > watched[0]:
                self._give_up(watched[1]())
                self._watched = None
