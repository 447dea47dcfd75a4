"""Fixed cost and cost per epoch of each launcher and input, and how the stack's overhead shrinks with epochs.

    python analysis/amortisation.py SERIES|RUN... [--epochs N...] [--keep-disturbed] [-o DIR]

From runs of 1, 2 and 3 epochs; longer ones check what is predicted. At least six repeats are recommended. There is a
picture only if some of the runs are native.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from dlobd.report import blocks, charts, script
from dlobd.report.amortisation import amortisation, report


def main() -> int:
    """Returns the exit code."""
    parser = script.parser(__doc__, disturbed=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=[8, 50], metavar="N", help="what is predicted")

    def shown(asked: Namespace) -> script.Shown:
        found = amortisation(blocks.taken(asked.runs), asked.keep_disturbed)
        return report(found, asked.epochs), charts.amortisation(found) if found.against else None

    return script.run("amortisation", parser, shown)


if __name__ == "__main__":
    sys.exit(main())
