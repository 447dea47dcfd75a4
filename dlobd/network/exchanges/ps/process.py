"""A parameter server's process, as its parent has it: one of the workers starts it and ends it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict

from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.ps.server import Place
from dlobd.network.exchanges.ps.serving import END_S


class ServerProcess:
    """Started, and listening at `address`.

    Args:
        deadline_s: until when it has to listen, a time of time.monotonic().

    Raises:
        ExchangeFailed: it does not listen in time, or has ended; what it says about it is on stderr.
    """

    def __init__(self, place: Place, deadline_s: float) -> None:
        self._name = f"ps-{place.index}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dlobd.network.exchanges.ps.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Spark adds what it brings along to the path of a process that runs already
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self.address = self._started(place, deadline_s)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def close(self) -> None:
        """Ends it: it answers what it was asked before; then, if it does not end, it is killed. May be called twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(3 * END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _started(self, place: Place, deadline_s: float) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        said = b""
        try:
            os.write(self._process.stdin.fileno(), json.dumps(asdict(place)).encode() + b"\n")
            while not said.endswith(b"\n"):
                left_s = max(0.0, deadline_s - time.monotonic())
                if not select.select([self._process.stdout], [], [], left_s)[0]:
                    raise ExchangeFailed(f"{self._name} did not listen in time")
                if not (more := os.read(self._process.stdout.fileno(), 1 << 12)):
                    raise ExchangeFailed(f"{self._name} ended before it listened: stderr of this rank says why")
                said += more
            return str(json.loads(said))
        except (BrokenPipeError, ValueError) as error:
            raise ExchangeFailed(f"{self._name} cannot be started: {error}") from error
