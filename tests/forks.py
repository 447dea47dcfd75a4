"""Processes that begin with TensorFlow imported: forks of a server that imports it once, since an import takes seconds.

The server ends with the test process, at the end of its stdin.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]


def run(
    commands: Sequence[Sequence[object]], timeout_s: float, given: str = "", **environment: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands concurrently, each with `given` on stdin.

    Args:
        commands: arguments of Python: `-c CODE WORD...` or `-m MODULE WORD...`.
        environment: added to that of this process.

    Raises:
        TimeoutExpired: they did not end in time, and were killed.
    """
    server = _server()
    words = [[str(word) for word in command] for command in commands]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "stdin").write_text(given)
        env = {**os.environ, **environment}
        request = {"directory": directory, "commands": words, "environment": env, "timeout_s": timeout_s}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        codes = json.loads(server.stdout.readline())
        said = [
            [(Path(directory) / f"{name}-{n}").read_text() for name in ("stdout", "stderr")] for n in range(len(words))
        ]
    if None in codes:
        raise subprocess.TimeoutExpired(words[codes.index(None)], timeout_s, *said[codes.index(None)])
    return [
        subprocess.CompletedProcess(command, code, *each)
        for command, code, each in zip(words, codes, said, strict=True)
    ]


@cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.forks"]
    server = subprocess.Popen(command, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, server, os.getpid())
    return server


def _end(server: subprocess.Popen[str], owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        server.communicate()


def _serve() -> None:
    from dlobd.job.launchers.imports import import_tensorflow

    import_tensorflow()
    import tensorflow  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        children = []
        for number, words in enumerate(request["commands"]):
            if not (pid := os.fork()):
                _become(Path(request["directory"]), number, words, request["environment"])
                return
            children.append(pid)
        print(json.dumps(_ended(children, request["timeout_s"])), flush=True)


def _become(directory: Path, number: int, words: list[str], environment: dict[str, str]) -> None:
    for stream, name in ((0, "stdin"), (1, f"stdout-{number}"), (2, f"stderr-{number}")):
        opened = os.open(directory / name, os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, stream)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    how, what, *rest = words
    sys.argv = [how if how == "-c" else what, *rest]
    if how == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _ended(children: list[int], timeout_s: float) -> list[int | None]:
    codes: dict[int, int] = {}
    deadline = time.monotonic() + timeout_s
    while len(codes) < len(children) and time.monotonic() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.01)
    for pid in set(children) - codes.keys():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [codes.get(pid) for pid in children]


def first(command: Sequence[object], timeout_s: float = 110, **environment: str) -> Any:
    return run([command], timeout_s, **environment)[0]


if __name__ == "__main__":
    _serve()
