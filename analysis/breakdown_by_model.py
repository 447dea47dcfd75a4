"""The layer breakdown by model, in seconds and in percent of the wall, and its picture as PNG and SVG.

    python analysis/breakdown_by_model.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep or of repeats, RUN a bundle's directory. Runs that are alike become a mean.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import breakdown_by_model, script

    sys.exit(script.main("breakdown-by-model", __doc__, breakdown_by_model.report))
