"""CRC-32C (Castagnoli), by which HDFS and TFRecord files check their bytes, of many rows at once."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray


@cache
def _crc32c_table() -> NDArray[np.uint32]:
    """CRC-32C (Castagnoli, reflected) of each byte."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> np.uint32(1)) ^ (crc & np.uint32(1)) * np.uint32(0x82F63B78)
    return crc


def crc32c(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """CRC-32C of each row. Rows advance together, one byte at a time: 60,000 of 784 bytes take about a second."""
    table = _crc32c_table()
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = table[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
