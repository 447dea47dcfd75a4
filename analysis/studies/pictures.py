"""How every picture is written: a figure of its own as PNG or SVG, equal figures as equal files; and how layers look.

A figure is drawn without a display and without matplotlib's global state: `matplotlib.figure.Figure(...)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from dlobd.errors import UsageError
from dlobd.layers import LAYERS, UNATTRIBUTED

SUFFIXES = (".png", ".svg")

HATCHES = {
    "client": "",
    "yarn": r"\\\\",
    "spark": "",
    "launcher": "xxx",
    "feed": "...",
    "hdfs": "|||",
    "tensorflow": "",
    "user": "++",
    "channel": "ooo",
    UNATTRIBUTED: "////",
}
"""Layer to its hatch, by which layers that may lie side by side are told apart without colour."""


LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of lines that are no layers, one after the other; of Okabe and Ito."""


LINES = tuple(zip(("-", "--", "-.", ":", "-", "--", "-."), "os^DvPX", LINE_COLOURS, strict=True))
"""Style, marker and colour of lines; any of the three tells them apart."""


def colour(layer: str) -> str:
    """A layer's colour; white for what is unattributed."""
    return LAYERS[layer].colour if layer in LAYERS else "white"


def write(figure: Figure, path: Path) -> None:
    """Writes a figure; the suffix of `path` (.png or .svg) says how. Equal figures give equal files.

    Raises:
        UsageError: another suffix, or the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is neither a .png nor a .svg file.", "use one of these suffixes")
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    try:
        with matplotlib.rc_context({"svg.hashsalt": "dlobd"}):  # else the ids in the file are random
            figure.savefig(path, metadata=metadata, dpi=150)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "choose another path") from error
