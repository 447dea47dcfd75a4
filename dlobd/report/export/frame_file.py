"""Export of a data frame of `dlobd.measures.frames` as CSV or Parquet, in parts that follow each other.

In both formats, columns of dicts, such as the attributes of spans, become JSON text.
"""

import csv
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TextIO

import fastparquet
import pandas as pd


def write_csv(parts: Iterable[pd.DataFrame], stream: TextIO) -> None:
    """Write CSV with a header. All text is quoted, because names may contain commas, quotes and newlines. A missing
    number is an empty cell."""
    for number, part in enumerate(parts):
        flat = _flat(part)
        flat.to_csv(stream, index=False, header=not number, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")


def write_parquet(parts: Iterable[pd.DataFrame], path: Path) -> None:
    """Write a Parquet file compressed by zstd, with a dictionary for each column of repeated texts. The run's ID,
    status and reason are in its pandas metadata."""
    for number, part in enumerate(parts):
        flat = _flat(part)
        # a category must have the same values in all parts: the parts of `spans` have their categories already
        texts = [name for name, kind in flat.dtypes.items() if kind == "str"]
        frame = flat.astype(dict.fromkeys(texts, "category"))
        fastparquet.write(str(path), frame, write_index=False, compression="ZSTD", append=bool(number))


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy with dicts replaced by JSON text."""
    objects = [name for name, kind in frame.dtypes.items() if kind == "object"]
    dicts = [str(name) for name in objects if isinstance(next(iter(frame[name]), None), dict)]
    return frame.assign(**{name: frame[name].map(partial(json.dumps, default=str)) for name in dicts})
