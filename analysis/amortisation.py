"""Fixed cost and cost per epoch of each launcher and input, and how the stack's overhead shrinks with epochs.

    python analysis/amortisation.py SERIES|RUN... [--epochs N...] [--keep-disturbed] [-o DIR]

From runs of 1, 2 and 3 epochs; longer ones check what is predicted. At least six repeats are recommended. There is a
picture only if some of the runs are native.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `analysis` is a package of the checkout
    from analysis.studies import amortisation, script

    sys.exit(script.run("amortisation", amortisation.parser(__doc__), amortisation.report))
