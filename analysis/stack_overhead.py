"""Native against in-stack: the walls of one job by launcher and input, split by layer, and what the stack adds.

    python analysis/stack_overhead.py SERIES|RUN... [--keep-disturbed] [-o DIR]

SERIES is a series' file, RUN a bundle's directory. The runs must have done the same work, one way of them natively.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import script, stack_overhead

    sys.exit(script.run("stack-overhead", script.parser(__doc__, disturbed=True), stack_overhead.report))
