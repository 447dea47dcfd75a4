"""Decompresses streams of Spark's CompressionCodec. A stream without an end gives the data before its last block."""

from collections.abc import Callable, Iterator
from struct import Struct

import cramjam

Codec = Callable[[bytes], Iterator[bytes]]

_LZ4_HEADER = Struct("<8sBiii")  # magic, method, compressed and original length, checksum
_LZ4_RAW = 0x10
_SNAPPY_HEADER = b"\x82SNAPPY\0"
_SNAPPY_VERSIONS = 8  # bytes after the header
_LZF_MAGIC = b"ZV"


def decompress(data: bytes, codec: str) -> bytes:
    """Return the data of a stream; `codec` is in `CODECS`. Raises ValueError for data of another format."""
    try:
        return b"".join(CODECS[codec](data))
    except (cramjam.DecompressionError, IndexError) as error:
        raise ValueError(f"it is not in Spark's format of {codec}: {error}") from error


def _zstd(data: bytes) -> Iterator[bytes]:
    out = cramjam.Buffer()
    try:
        cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError:
        if not out.tell():
            raise
    out.seek(0)
    yield bytes(out.read())


def _lz4(data: bytes) -> Iterator[bytes]:
    """LZ4BlockOutputStream of lz4-java: blocks with headers."""
    at = 0
    while at + _LZ4_HEADER.size <= len(data):
        magic, method, size, original, _ = _LZ4_HEADER.unpack_from(data, at)
        if magic != b"LZ4Block":
            raise ValueError("a block does not begin with LZ4Block")
        at += _LZ4_HEADER.size
        block, at = data[at : at + size], at + size
        if len(block) == size and original:
            yield (
                block if method & 0xF0 == _LZ4_RAW else bytes(cramjam.lz4.decompress_block(block, output_len=original))
            )


def _snappy(data: bytes) -> Iterator[bytes]:
    """SnappyOutputStream of snappy-java: a header, then blocks after their lengths; streams may follow each other."""
    if not data.startswith(_SNAPPY_HEADER[: len(data)]):
        raise ValueError("it does not begin with SNAPPY")
    at = 0
    while at + 4 <= len(data):
        if data.startswith(_SNAPPY_HEADER, at):
            at += len(_SNAPPY_HEADER) + _SNAPPY_VERSIONS
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        block, at = data[at + 4 : at + 4 + size], at + 4 + size
        if len(block) == size:
            yield bytes(cramjam.snappy.decompress_raw(block))


def _lzf(data: bytes) -> Iterator[bytes]:
    """LZFOutputStream of compress-lzf: chunks, compressed (1) or not (0), with lengths of two bytes."""
    at = 0
    while at + 7 <= len(data):
        if data[at : at + 2] != _LZF_MAGIC:
            raise ValueError("a chunk does not begin with ZV")
        compressed, size = data[at + 2], int.from_bytes(data[at + 3 : at + 5], "big")
        begin = at + (7 if compressed else 5)
        chunk, original, at = data[begin : begin + size], int.from_bytes(data[at + 5 : at + 7], "big"), begin + size
        if len(chunk) == size:
            yield _lzf_chunk(chunk, original) if compressed else chunk


def _lzf_chunk(data: bytes, size: int) -> bytes:
    out, at = bytearray(), 0
    while len(out) < size:
        control, at = data[at], at + 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length, at = length + data[at], at + 1
        back, at = ((control & 31) << 8) + data[at] + 1, at + 1
        for _ in range(length + 2):
            out.append(out[-back])
    return bytes(out)


CODECS: dict[str, Codec] = {"zstd": _zstd, "lz4": _lz4, "snappy": _snappy, "lzf": _lzf}
"""Spark's short name of a codec, the suffix of its files -> function that yields the parts of the data."""
