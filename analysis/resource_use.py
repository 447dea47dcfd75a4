"""What a run used of its machine over time, and by layer: CPU, memory, disk, network, GPU.

    python analysis/resource_use.py RUN [-o DIR]

RUN is a bundle's directory.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

import dlobd
from dlobd.report import script
from dlobd.report.resource_chart import report, resource_chart


def main() -> int:
    """Returns the exit code."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a run's bundle")

    def shown(asked: Namespace) -> script.Shown:
        bundle = dlobd.load(asked.run)
        return report(bundle.run), resource_chart(bundle)

    return script.run("resource-use", parser, shown)


if __name__ == "__main__":
    sys.exit(main())
