"""Reference measurement with UCX's own C program, ucx_perftest, and the channel's libucp.

Its tests tag_lat and tag_bw correspond to the benchmarks latency and bandwidth; tag_bw keeps up to 32 messages in
transit, its default. The program comes with UCX (Debian: ucx-utils), or with the package `libucx-cu13`; it also runs
with another libucp of the same version.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from dlobd.errors import SetupError
from dlobd.micro.hosts import Host
from dlobd.network.channels.ucx.library import load
from dlobd.network.channels.ucx.worker import settings

PORT = 13337  # default port of ucx_perftest
TESTS = {"latency": "tag_lat", "bandwidth": "tag_bw"}
LISTENS_S = 10.0  # timeout until the server listens
PATIENCE_S = 60.0


def figure(
    program: Path, transport: str, hosts: Sequence[Host], interface: str, benchmark: str, size_bytes: int, calls: int
) -> float:
    """Return the one-way latency in microseconds, or the bandwidth in MB/s (10^6 bytes).

    Args:
        hosts: hosts of server and client.

    Raises SetupError: the program failed.
    """
    library = load()
    chosen = settings("shm", "") if transport == "shm" else {"TLS": "tcp", "NET_DEVICES": interface}
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(Path(os.path.realpath(library.path)).parent),
        "UCX_WARN_UNUSED_ENV_VARS": "n",
        **{f"UCX_{name}": value for name, value in chosen.items()},
    }
    cores = sorted(os.sched_getaffinity(0))

    def command(rank: int, *server: str) -> list[str]:
        options = ["-t", TESTS[benchmark], "-s", str(size_bytes), "-n", str(calls), "-w", str(calls // 10)]
        options += ["-c", str(cores[rank % len(cores)]), "-p", str(PORT), "-f", "-v"]
        return [*hosts[rank].command, str(program), *server, *options]

    with ExitStack() as opened:
        serving = opened.enter_context(
            subprocess.Popen(command(0), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        )
        opened.callback(serving.kill)
        until_s = time.monotonic() + LISTENS_S
        while True:
            client = command(1, hosts[0].address)
            done = subprocess.run(
                client, env=environment, timeout=PATIENCE_S, capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                break
            if time.monotonic() > until_s or serving.poll() is not None:
                why = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
                raise SetupError(f"{program.name} failed: {why[0]}", "dlobd doctor")
            time.sleep(0.05)
        serving.wait(PATIENCE_S)
    # the CSV has a header and a line of figures: microseconds for latencies, and MiB/s labelled as MB/s
    header, *lines = [line.split(",") for line in done.stdout.splitlines() if "," in line]
    figures = dict(zip(header, map(float, lines[-1]), strict=True))
    return figures["overall_lat"] if benchmark == "latency" else figures["overall_bw"] * 2**20 / 1e6
