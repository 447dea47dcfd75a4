"""One training over several channels, libraries, exchanges and ranks: what an exchange costs by its parts, and by what
its bytes really went, as a table and a picture (PNG and SVG).

    python analysis/channel_comparison.py SERIES|RUN... [-o DIR]

SERIES is the series-KEY.json of a sweep such as channels-mnist or channels-cifar10, RUN a bundle's directory. Channels
that no run has are listed with what this machine lacks.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import channel_comparison, script

    sys.exit(script.main("channel-comparison", __doc__, channel_comparison.report))
