"""Test accuracy over time on two clocks, from submit and from the first touch of the data, as tables and a picture.

    python analysis/accuracy.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep or of repeats, RUN a bundle's directory, of runs with evaluate_every_epochs.
The picture is written as PNG and SVG.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import accuracy, script

    sys.exit(script.main("accuracy", __doc__, accuracy.report))
