"""The framing of the pipe from a Spark task to its trainer: a length, and then so many bytes. Standard library only."""

from __future__ import annotations

import struct
from typing import IO

LENGTH = struct.Struct("<q")
END_OF_FEED = -1


def write(pipe: IO[bytes], data: bytes) -> None:
    """One message, on its way when this returns."""
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def write_end(pipe: IO[bytes]) -> None:
    """Says that nothing follows."""
    pipe.write(LENGTH.pack(END_OF_FEED))
    pipe.flush()


def read(pipe: IO[bytes]) -> bytes | None:
    """One message; None at the end of the feed.

    Raises:
        EOFError: the writer is gone.
    """
    header = pipe.read(LENGTH.size)
    if len(header) < LENGTH.size:
        raise EOFError("the feeding Spark task is gone")
    (length,) = LENGTH.unpack(header)
    if length == END_OF_FEED:
        return None
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the feeding Spark task ended inside a block")
    return data
