"""Writes a file of a data set, in the format of `tfrecord`, piece by piece.

It needs only a data set and a storage, so any process can write any part: the staging command, or a process on a node.
"""

from collections.abc import Iterator

from dlobd import spans as kinds
from dlobd.errors import SetupError
from dlobd.hadoop.checksum import FileChecksum
from dlobd.hadoop.file_system import Storage
from dlobd.job.datasets import tfrecord, user
from dlobd.job.datasets.base import Dataset, Order, Split, layout_of

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
        for images, labels in user.chunks(self._dataset, self._split, self._order, samples):
            try:
                piece = tfrecord.encode(images, labels, self._layout)
            except tfrecord.BadSample as error:
                sample = int(self._order[done + error.at])
                raise SetupError(
                    f"Data set {user.described(self._dataset)}, {self._split} sample {sample}: {error}."
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
