"""What one span costs: nanoseconds of CPU time with the recorder on and off, interleaved, median of several repeats.

    python analysis/span_cost.py [--spans N] [--repeats N]

On: half of them a wait with a size and half a rendezvous, as in a trainer's step loop, encoded and written to a file,
with cold caches.
Off: what instrumented code costs where nothing is recorded. An empty loop's share is taken off both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from dlobd.tracing import span_cost


def main() -> None:
    """Print one line for each way, and how busy the machine is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = span_cost.measured(Path(directory), asked.spans, asked.repeats)
    for name in ("on", "off"):
        each = found[name]
        print(f"{name:<4}{statistics.median(each):8.0f} ns a span   (lowest {each[0]:.0f}, highest {each[-1]:.0f})")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
