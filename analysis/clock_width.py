"""Measure the precision of clock offsets from message pairs over loopback, for single pairs and for all pairs together.

    python analysis/clock_width.py [--exchanges N]

The client is another process, like an executor on another host. If this user may create a time namespace, the client
runs in a time namespace with a known clock shift.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from statistics import median, quantiles

from dlobd.tracing import clock
from dlobd.tracing.clock_offset import Exchange, Offset
from dlobd.tracing.clock_sync import Server

SHIFT_S = 5000
CLIENT = Path(__file__).with_name("studies") / "clock_client.py"
APART = ("--time", "--monotonic", str(SHIFT_S), "--fork")
WAYS = (["unshare", *APART], ["unshare", "--user", "--map-root-user", *APART], ["env"])


def exchanged(count: int) -> tuple[bool, list[Exchange]]:
    """Run a client; return True if its clock was shifted, and its message pairs."""
    server = Server("127.0.0.1")
    client = [sys.executable, str(CLIENT), str(count)]
    environment = {**os.environ, **server.environment}
    for way in [way for way in WAYS if which(way[0])]:
        done = subprocess.run([*way, *client], env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            break
    server.close()
    domain, *pairs = map(json.loads, done.stdout.splitlines())
    return domain != clock.domain(), [Exchange(*pair) for pair in pairs]


def main() -> None:
    """Print the widths of the offset intervals, and the number of intervals that contain the true offset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1000)
    other, pairs = exchanged(parser.parse_args().exchanges)
    widths = [(p.received_a_ns - p.sent_a_ns) - (p.sent_b_ns - p.received_b_ns) for p in pairs]
    p99_us = quantiles(widths, n=100)[98] / 1e3
    shift_ns = -SHIFT_S * 1_000_000_000 if other else 0
    inside = sum(p.sent_b_ns - p.received_a_ns <= shift_ns <= p.received_b_ns - p.sent_a_ns for p in pairs)
    together_ns = Offset(pairs).at(pairs[len(pairs) // 2].sent_a_ns).width_ns
    print(f"{len(pairs)} exchanges with {'another time namespace' if other else 'a process of the same clock'}")
    print(f"each pair: median {median(widths) / 1e3:.1f} us, 99th percentile {p99_us:.1f} us wide")
    print(f"all pairs together: {together_ns / 1e3:.1f} us wide")
    print(f"the true offset was inside in {inside} of {len(pairs)}")


if __name__ == "__main__":
    main()
