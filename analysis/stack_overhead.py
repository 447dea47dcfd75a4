"""Native against in-stack: the walls of one job by launcher and input, split by layer, and what the stack adds.

    python analysis/stack_overhead.py SERIES|RUN... [--keep-disturbed] [-o DIR]

SERIES is a series' file, RUN a bundle's directory. The runs must have done the same work, one way of them natively.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from dlobd.report import blocks, charts, script
from dlobd.report.stack_overhead import report, stack_overhead


def main() -> int:
    """Returns the exit code."""

    def shown(asked: Namespace) -> script.Shown:
        found = stack_overhead(blocks.taken(asked.runs), asked.keep_disturbed)
        return report(found), charts.stack_overhead(found)

    return script.run("stack-overhead", script.parser(__doc__, disturbed=True), shown)


if __name__ == "__main__":
    sys.exit(main())
