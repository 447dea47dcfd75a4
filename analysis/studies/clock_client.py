"""Client of `analysis/clock_width.py`: another process that exchanges clock messages with its server.

python analysis/studies/clock_client.py EXCHANGES
"""

import json
import os
import sys

from dlobd.tracing import clock
from dlobd.tracing.clock_sync import VARIABLE, Peer

TRIES = 20
"""Bursts of the client; a stall of the machine may cut a burst short."""


def ask(count: int) -> None:
    """Print the clock domain, and `count` exchanges with the server in the environment, as JSON lines."""
    server = Peer(**json.loads(os.environ[VARIABLE]))
    print(json.dumps(clock.domain()))
    for _ in range(TRIES):
        for pair in server.exchange(count):
            print(json.dumps([pair.sent_a_ns, pair.received_b_ns, pair.sent_b_ns, pair.received_a_ns]))
            count -= 1


if __name__ == "__main__":
    ask(int(sys.argv[1]))
