"""Writing of pictures as PNG or SVG, with colours and hatches of layers.

`matplotlib.figure.Figure(...)` needs no display and no global state. Equal figures give equal files.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

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
"""Hatch of each layer, which distinguishes neighbouring layers without colour."""

Style = dict[str, Any]
"""Keyword arguments for matplotlib."""

EDGE: Style = {"edgecolor": "black", "linewidth": 0.4}
"""Outline of bars."""

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours for lines that are not layers, from Okabe and Ito's palette."""

LINES = tuple(zip(("-", "--", "-.", ":", "-", "--", "-."), "os^DvPX", LINE_COLOURS, strict=True))
"""Style, marker and colour of lines. Each of these properties alone distinguishes the lines."""


def colour(layer: str) -> str:
    """Return the colour of a layer; white for unattributed time."""
    return LAYERS[layer].colour if layer in LAYERS else "white"


def bar(layer: str) -> Style:
    """Return matplotlib's style of a layer's bar."""
    return {"color": colour(layer), "hatch": HATCHES[layer], **EDGE}


def layer_legend(
    figure: Figure, layers: Collection[str], loc: Literal["outside lower left", "lower left"] = "outside lower left"
) -> None:
    """Add a legend of layers in a row below the picture."""
    handles = [
        Patch(facecolor=colour(name), hatch=hatch, label=LAYERS[name].title if name in LAYERS else name, **EDGE)
        for name, hatch in HATCHES.items()
        if name in layers
    ]
    figure.legend(handles=handles, loc=loc, ncols=len(handles), fontsize="small", frameon=False)


def write(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the suffix of `path`, .png or .svg.

    Raises:
        UsageError: unsupported suffix, or the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is neither a .png nor a .svg file.", "use one of these suffixes")
    try:
        with matplotlib.rc_context(
            {"svg.hashsalt": "dlobd"}
        ):  # constant salt, because IDs in the file are random without it
            figure.savefig(path, metadata={"Date" if path.suffix == ".svg" else "Software": None}, dpi=150)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "choose another path") from error
