"""Processes of a launch on this machine, each on a host: this machine's own network, or a network namespace."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dlobd.fields import plain
from dlobd.micro.plan import Role

OWN = "dlobd.micro.end"

Received = Callable[[dict[str, Any]], None]


class EndProcess:
    """Process of a role. `received` gets its messages, in a thread; the last is {"failed": ...} or {"gone": ...}.

    command: prefix of the command line, such as `ip netns exec NAME`.
    """

    def __init__(self, role: Role, received: Received, command: tuple[str, ...] = ()) -> None:
        self._received = received
        self._process = subprocess.Popen(
            [*command, sys.executable, "-m", OWN],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C goes to the coordinator only, which stops its processes
        )
        self._last_error = ""  # last line of stderr, the reason of a process that ended without a report
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()
        self.send(plain(role))

    def send(self, message: Any) -> None:
        """Write a message; a process that is gone does not get it."""
        assert self._process.stdin is not None
        with suppress(OSError):  # its end is reported by the reading thread
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """Kill the process, and wait for it and for its messages."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with suppress(OSError):  # an unsent message to a process that is gone
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._received(json.loads(line))
        code = self._process.wait()
        self._threads[1].join()
        self._received({"gone": self._last_error or f"it ended with exit code {code}", "code": code})

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_error = line.strip() or self._last_error
