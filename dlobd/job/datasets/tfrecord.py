"""TFRecord files of images, with records of equal length.

A record is a standard `tf.train.Example {image: bytes, label: int64}`, which tf.data reads directly. Because all
records have the same length, Spark's `sc.binaryRecords` reads them too, without a SQL session. All bytes except image,
label and checksum are equal in every record: the template. A block is therefore decoded by slicing, after a comparison
of its other bytes with the template.

    uint64 length | uint32 masked crc32c of length | Example | uint32 masked crc32c of Example      little-endian

All labels are varints with the length of the largest label. Smaller labels are padded with zeros: this is not the
shortest encoding, but every reader of protocol buffers accepts it.
"""

import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlobd.hadoop.checksum import crc32c

DTYPES = ("uint8", "float32")
"""Types of images. Decoding scales bytes to [0, 1]; floats are little-endian and not scaled."""


class BadSample(ValueError):
    """Mismatch between a sample and the layout; `at` is the position of the sample in its batch."""

    def __init__(self, text: str, at: int = 0) -> None:
        super().__init__(text)
        self.at = at


_HEADER_BYTES = 12
_FOOTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a record."""

    shape: tuple[int, ...]  # of one image
    dtype: str = "uint8"  # of its values; a member of `DTYPES`
    classes: int = 128  # labels are 0 .. classes - 1

    @property
    def image_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def template(self) -> bytes:
        """A record with zeros for image, label and the Example's checksum."""
        return self._parts[0]

    @property
    def image(self) -> slice:
        return slice(self._parts[1], self._parts[1] + self.image_bytes)

    @property
    def label(self) -> slice:
        """The label's varint inside the record."""
        return slice(self._parts[2], self._parts[2] + self.label_bytes)

    @property
    def label_bytes(self) -> int:
        """Size of a label's varint: seven bits per byte."""
        return max(1, -(-(self.classes - 1).bit_length() // 7))

    @property
    def example(self) -> slice:
        return slice(_HEADER_BYTES, self.record_bytes - _FOOTER_BYTES)

    @property
    def crc(self) -> slice:
        """The Example's checksum inside the record, which is also used as the ID of the sample."""
        return slice(self.record_bytes - _FOOTER_BYTES, self.record_bytes)

    @property
    def record_bytes(self) -> int:
        """Size of a record in the file: the `recordLength` of `sc.binaryRecords`."""
        return len(self.template)

    @property
    def _parts(self) -> tuple[bytes, int, int]:
        return _parts(self.image_bytes, self.label_bytes)


@cache
def _parts(image_bytes: int, label_bytes: int) -> tuple[bytes, int, int]:
    """Return the template, and the positions of image and label."""
    # placeholders that occur nowhere else in the record, to locate image and label; then set to zero
    image, label = b"\xff" * image_bytes, b"\x7f" * label_bytes
    # map<string, Feature> is a repeated {1: key, 2: Feature}; Feature is {1: BytesList} or {3: Int64List (packed)}
    image_entry = _field(1, b"image") + _field(2, _field(1, _field(1, image)))
    label_entry = _field(1, b"label") + _field(2, _field(3, _field(1, label)))
    example = _field(1, _field(1, image_entry) + _field(1, label_entry))
    length = struct.pack("<Q", len(example))
    crc = int(_masked_crc32c(np.frombuffer(length, np.uint8)[np.newaxis])[0])
    record = bytearray(length + struct.pack("<I", crc) + example + bytes(_FOOTER_BYTES))
    image_at = record.index(image, _HEADER_BYTES)
    label_at = record.index(label, image_at + image_bytes)
    record[image_at : image_at + image_bytes] = bytes(image_bytes)
    record[label_at : label_at + label_bytes] = bytes(label_bytes)
    return bytes(record), image_at, label_at


def encode(images: NDArray[Any], labels: NDArray[Any], layout: Layout) -> bytes:
    """Encode images [n, *shape] and labels [n] as TFRecords, in order.

    Raises BadSample if lengths differ, images have another shape or type than the layout, or a label is not a class.
    """
    if len(images) != len(labels):
        raise BadSample(f"{len(images)} images have {len(labels)} labels")
    if images.shape[1:] != layout.shape or images.dtype != np.dtype(layout.dtype):
        actual = f"{images.dtype} {list(images.shape[1:])}"
        raise BadSample(f"images are {actual}, not {layout.dtype} {list(layout.shape)}")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise BadSample(f"labels are {labels.dtype} {list(labels.shape[1:])}, not one integer per sample")
    if len(wrong := np.flatnonzero((labels < 0) | (labels >= layout.classes))):
        at = int(wrong[0])
        raise BadSample(f"label {int(labels[at])} is not between 0 and {layout.classes - 1}", at)
    records = np.tile(np.frombuffer(layout.template, np.uint8), (len(images), 1))
    values = np.ascontiguousarray(images, np.dtype(layout.dtype).newbyteorder("<"))
    records[:, layout.image] = values.reshape(len(images), math.prod(layout.shape)).view(np.uint8)
    records[:, layout.label] = _varints(labels, layout.label_bytes)
    crcs = _masked_crc32c(records[:, layout.example]).astype("<u4")
    records[:, -_FOOTER_BYTES:] = crcs.view(np.uint8).reshape(-1, _FOOTER_BYTES)
    return records.tobytes()


def decode_block(block: bytes, layout: Layout) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Decode a block to images [n, *shape] and labels [n]; bytes are scaled to [0, 1].

    Raises the errors of `checked_records`.
    """
    records = checked_records(block, layout)
    images = records[:, layout.image]
    if layout.dtype == "uint8":
        values = images.astype(np.float32) / np.float32(255)
    else:
        values = np.ascontiguousarray(images).view("<f4").astype(np.float32, copy=False)
    shifts = np.arange(layout.label_bytes, dtype=np.int32) * 7
    varints = records[:, layout.label]
    labels: NDArray[np.int32] = ((varints & 0x7F).astype(np.int32) << shifts).sum(axis=1, dtype=np.int32)
    return values.reshape(-1, *layout.shape), labels


def checked_records(block: bytes, layout: Layout) -> NDArray[np.uint8]:
    """Return the records [n, record_bytes] of a block as a view, after a comparison with the template.

    It does not compute the Examples' checksums, because HDFS checks its own checksums at every read.

    Raises ValueError if the block does not consist of whole records of this layout.
    """
    if not block or len(block) % layout.record_bytes:
        raise ValueError(f"a block of {len(block)} bytes does not consist of records of {layout.record_bytes} bytes")
    records = np.frombuffer(block, np.uint8).reshape(-1, layout.record_bytes)
    template = np.frombuffer(layout.template, np.uint8)
    for fixed in (
        slice(0, layout.image.start),
        slice(layout.image.stop, layout.label.start),
        slice(layout.label.stop, layout.example.stop),
    ):
        if not (records[:, fixed] == template[fixed]).all():
            wrong = int((records[:, fixed] != template[fixed]).any(axis=1).argmax())
            raise ValueError(f"record {wrong} of a block is not an Example of an image and a label")
    return records


def _varints(labels: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """Encode labels as varints [n, size]: seven bits per byte, the lowest first; the highest bit marks a continuation.

    A varint of one byte equals the label."""
    shifts = np.arange(size, dtype=np.int64) * 7
    parts = (labels.astype(np.int64)[:, np.newaxis] >> shifts & 0x7F).astype(np.uint8)
    parts[:, :-1] |= 0x80
    return parts


def _field(number: int, value: bytes) -> bytes:
    """Encode a protobuf field of wire type 2: tag, length, value."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _masked_crc32c(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    crc = crc32c(rows)
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
