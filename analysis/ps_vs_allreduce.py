"""Parameter servers against all-reduces, over the number of ranks, as a table and a picture (PNG and SVG).

    python analysis/ps_vs_allreduce.py [--ranks N...] [--repeats N] [--rate RATE] [-o DIR]

Ranks are processes on hosts that are network namespaces of this machine, each with a link of its own: this needs root
and iproute2. The gradients are those of cifar10-quick.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import ps_vs_allreduce, script

    sys.exit(script.run("ps-vs-allreduce", ps_vs_allreduce.parser(__doc__), ps_vs_allreduce.report))
