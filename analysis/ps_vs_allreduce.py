"""Parameter servers against all-reduces, over the number of ranks, as a table and a picture (PNG and SVG).

    python analysis/ps_vs_allreduce.py [--ranks N...] [--repeats N] [--rate RATE] [-o DIR]

Ranks are processes on hosts that are network namespaces of this machine, each with a link of its own: this needs root
and iproute2. The gradients are those of cifar10-quick.
"""

from __future__ import annotations

import argparse
import sys

from dlobd.report import ps_vs_allreduce, script

if __name__ == "__main__":
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sys.exit(script.run("ps-vs-allreduce", ps_vs_allreduce.options(made), ps_vs_allreduce.report))
