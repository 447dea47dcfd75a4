"""dlobd: benchmark of deep learning on HDFS, YARN and Spark, which attributes a job's wall time to layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlobd.marks import span, step

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from dlobd.measures.frames import RunBundle

__version__ = "0.2.0.dev0"

__all__ = ["__version__", "load", "load_sweep", "span", "step"]


def load(run: str | Path = "latest", out: str | Path | None = None) -> RunBundle:
    """Open a run for analysis: `dlobd.load("latest").attribution()`. `run` is a bundle path, a run ID or its first
    characters, or latest; `out` is the directory for run bundles, by default that of the command line.

    Raises BundleError if the bundle is missing, damaged or of a newer version."""
    # imported late: pandas takes 0.5 s to import, and processes on the cluster import this package too
    from dlobd.measures.frames import RunBundle

    return RunBundle(run, out)


def load_sweep(path: str | Path) -> pd.DataFrame:
    """Return a data frame with one row per run of a series: `dlobd.load_sweep("runs/series-KEY.json")`.

    `dlobd.compare.sweep_frame.COLUMNS` lists its columns; each axis of a sweep adds a column. Raises BundleError if the
    file or a run's bundle is missing, damaged or of a newer version."""
    from dlobd.compare.sweep_frame import load as read

    return read(path)
