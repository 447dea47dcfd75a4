"""Speed-up and efficiency over workers, with the layers of each, as tables and a picture (PNG and SVG).

    python analysis/scaling.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep over workers, RUN a bundle's directory. From three runs of each point on,
figures have a 95 % interval.
"""

from __future__ import annotations

import sys

from dlobd.report import scaling, script

if __name__ == "__main__":
    sys.exit(script.main("scaling", __doc__, scaling.report))
