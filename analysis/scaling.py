"""Speed-up and efficiency over workers, with the layers of each, as tables and a picture (PNG and SVG).

    python analysis/scaling.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep over workers, RUN a bundle's directory. From three runs of each point on,
figures have a 95 % interval.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import scaling, script

    sys.exit(script.main("scaling", __doc__, scaling.report))
