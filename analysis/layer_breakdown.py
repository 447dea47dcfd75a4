"""The overhead table a layer, and its picture as PNG and SVG, from run bundles alone.

    python analysis/layer_breakdown.py RUN... [-o DIR]

RUN is a bundle's directory. Several runs of one experiment become one table of means and standard deviations.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import layer_breakdown, script

    sys.exit(script.run("layer-breakdown", layer_breakdown.parser(__doc__), layer_breakdown.report))
