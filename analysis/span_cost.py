"""Measure the CPU time per span in nanoseconds, with the recorder alternately on and off; median of several repeats.

    python analysis/span_cost.py [--spans N] [--repeats N]

On: half of the spans are waits with a size and half are rendezvous, as in a trainer's step loop; they are encoded and
written to a file, with cold caches. Off: instrumented code that records nothing. Both exclude the time of an empty
loop.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from dlobd.tracing import span_cost


def main() -> None:
    """Print the cost per span with recording on and off, and the load of the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = span_cost.measured(Path(directory), asked.spans, asked.repeats)
    for name in ("on", "off"):
        each = found[name]
        print(f"{name:<4}{statistics.median(each):8.0f} ns per span   (lowest {each[0]:.0f}, highest {each[-1]:.0f})")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
