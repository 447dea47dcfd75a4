"""Images as TFRecord files whose records all have one length.

A record is a standard `tf.train.Example {image: bytes, label: int64}`, so tf.data reads the file as it is; because all
lengths are equal, Spark's `sc.binaryRecords` reads it as well, without a SQL session. Everything but the image, the
label and the checksum is the same in every record: the template. So a block is decoded by slicing, and any byte that
differs from the template is noticed.

    uint64 length | uint32 masked crc32c of length | Example | uint32 masked crc32c of Example      little-endian
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dlobd.hadoop.crc32c import crc32c

_HEADER_BYTES = 12
_FOOTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a record with an image of `image_bytes` lie."""

    image_bytes: int

    @property
    def template(self) -> bytes:
        """A whole record, with zeros in place of image, label and the Example's checksum."""
        return _parts(self.image_bytes)[0]

    @property
    def image(self) -> slice:
        """The image inside the record."""
        start = _parts(self.image_bytes)[1]
        return slice(start, start + self.image_bytes)

    @property
    def label(self) -> int:
        """The label's byte inside the record."""
        return _parts(self.image_bytes)[2]

    @property
    def example(self) -> slice:
        """The serialised Example inside the record."""
        return slice(_HEADER_BYTES, self.record_bytes - _FOOTER_BYTES)

    @property
    def record_bytes(self) -> int:
        """Length of one record in the file, in bytes: the `recordLength` of `sc.binaryRecords`."""
        return len(self.template)


@cache
def _parts(image_bytes: int) -> tuple[bytes, int, int]:
    """The template, and where image and label begin in it."""
    # marks that cannot occur in what surrounds them: they are found again and set to zero
    image, label = b"\xff" * image_bytes, b"\x7f"
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
    record[label_at] = 0
    return bytes(record), image_at, label_at


def encode(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """A TFRecord file of images [n, ...] and labels [n], in their order.

    Raises:
        ValueError: lengths differ, or a label needs more than one byte (>= 128).
    """
    if len(images) != len(labels) or (len(labels) and labels.max() >= 128):
        raise ValueError("one label below 128 is needed for each image")
    flat = images.reshape(len(images), -1)
    layout = Layout(flat.shape[1])
    records = np.tile(np.frombuffer(layout.template, np.uint8), (len(flat), 1))
    records[:, layout.image] = flat
    records[:, layout.label] = labels
    crcs = _masked_crc32c(records[:, layout.example]).astype("<u4")
    records[:, -_FOOTER_BYTES:] = crcs.view(np.uint8).reshape(-1, _FOOTER_BYTES)
    return records.tobytes()


def decode_block(block: bytes, layout: Layout) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Images [n, image_bytes] in [0, 1] and labels [n] of a block of whole records.

    Raises:
        ValueError: see `checked_records`.
    """
    records = checked_records(block, layout)
    images = records[:, layout.image].astype(np.float32) / np.float32(255)
    return images, records[:, layout.label].astype(np.int32)


def checked_records(block: bytes, layout: Layout) -> NDArray[np.uint8]:
    """The records [n, record_bytes] of a block, not copied.

    Checksums of the Examples are not computed again: HDFS checks its own on every read.

    Raises:
        ValueError: the block does not consist of whole records of this layout.
    """
    if not block or len(block) % layout.record_bytes:
        raise ValueError(f"a block of {len(block)} bytes is not made of records of {layout.record_bytes} bytes")
    records = np.frombuffer(block, np.uint8).reshape(-1, layout.record_bytes)
    template = np.frombuffer(layout.template, np.uint8)
    for fixed in (
        slice(0, layout.image.start),
        slice(layout.image.stop, layout.label),
        slice(layout.label + 1, layout.example.stop),
    ):
        if not (records[:, fixed] == template[fixed]).all():
            wrong = int((records[:, fixed] != template[fixed]).any(axis=1).argmax())
            raise ValueError(f"record {wrong} of a block is not an Example of an image and a label")
    return records


def _field(number: int, value: bytes) -> bytes:
    """A protobuf field of wire type 2: tag, length, value."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _masked_crc32c(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """TFRecord's masked CRC-32C of each row."""
    crc = crc32c(rows)
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
