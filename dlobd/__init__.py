"""dlobd: a benchmark of deep learning over big-data stacks, which shows where a job's time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from dlobd.measures.frames import RunBundle

__version__ = "0.2.0.dev0"

__all__ = ["__version__", "load", "load_sweep"]


def load(path: str | Path) -> RunBundle:
    """Open a run bundle for analysis: `dlobd.load("runs/softmax-mnist/...").attribution()`.
    Raises BundleError if the bundle is missing, damaged or of a newer version."""
    # imported here: pandas costs half a second, and the cluster's processes import this package too
    from dlobd.measures.frames import RunBundle

    return RunBundle(path)


def load_sweep(path: str | Path) -> pd.DataFrame:
    """Return one row per run of a sweep or another series: `dlobd.load_sweep("runs/series-KEY.json")`.

    Columns are those of `dlobd.compare.sweep_frame.COLUMNS`, and the axes.

    Raises BundleError if the file or a run's bundle is missing, damaged or of a newer version.
    """
    from dlobd.compare.sweep_frame import load as read

    return read(path)
