"""What a run used of its machine over time, and by layer: CPU, memory, disk, network, GPU.

    python analysis/resource_use.py RUN [-o DIR]

RUN is a bundle's directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import resource_use, script

    sys.exit(script.run("resource-use", resource_use.parser(__doc__), resource_use.report))
