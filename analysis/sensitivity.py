"""Normalised sensitivity of wall, layers and throughput to the settings of a sweep, as a table and a picture.

    python analysis/sensitivity.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep over all combinations, with at least three repeats. RUN is a bundle's
directory; of bundles alone every setting in which they differ is a factor. The picture is written as PNG and SVG.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import script, sensitivity

    sys.exit(script.main("sensitivity", __doc__, sensitivity.report))
