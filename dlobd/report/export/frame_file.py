"""Export of a data frame of `dlobd.measures.frames` as CSV or Parquet.

In both formats, columns of dicts, such as the attributes of spans, become JSON text.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import fastparquet
import pandas as pd


def csv_text(frame: pd.DataFrame) -> str:
    """Convert a frame to CSV with a header. All text is quoted, because names may contain commas, quotes and newlines.
    A missing number is an empty cell."""
    text: str = _flat(frame).to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    return text


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a Parquet file compressed by zstd, with a dictionary for each column of repeated texts. The run's ID,
    status and reason are in its pandas metadata."""
    flat = _flat(frame)
    texts = [name for name, kind in flat.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    kinds = {name: "category" if flat[name].nunique() * 2 <= len(flat) else "object" for name in texts}
    fastparquet.write(str(path), flat.astype(kinds), write_index=False, compression="ZSTD")


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy with dicts replaced by JSON text."""
    flat = frame.copy()
    for name, kind in frame.dtypes.items():
        if not pd.api.types.is_numeric_dtype(kind):
            flat[name] = frame[name].map(_text)
    return flat


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
