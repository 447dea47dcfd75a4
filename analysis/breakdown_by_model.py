"""The layer breakdown by model, in seconds and in percent of the wall, and its picture as PNG and SVG.

    python analysis/breakdown_by_model.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep or of repeats, RUN a bundle's directory. Runs that are alike become a mean.
"""

from __future__ import annotations

import sys

from dlobd.report import by_model, script

if __name__ == "__main__":
    sys.exit(script.main("breakdown-by-model", __doc__, by_model.report))
