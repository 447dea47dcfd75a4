"""Trainer in a process of its own: `python -m dlobd.job.launchers.trainer_process`, and the pipe to this process.

    parent: start -> assign (rank, addresses of all ranks) -> with a feed: blocks, end of feed
    child:  import TensorFlow -> read the assignment -> train

The child imports TensorFlow before it reads its assignment: the import overlaps with the rendezvous. A message on the
pipe is a length followed by the bytes.
"""

import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, BinaryIO

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.job.launchers.base import place, role_of
from dlobd.job.launchers.imports import import_tensorflow, record_packages

LENGTH = struct.Struct("<q")
END_OF_FEED = -1


def start(environment: Mapping[str, str], piped_output: bool = False) -> subprocess.Popen[bytes]:
    """Start a trainer's process, which waits for `assign` on its stdin. By default it inherits stdout and stderr."""
    command = [sys.executable, "-m", "dlobd.job.launchers.trainer_process"]
    stdout, stderr = (subprocess.PIPE, subprocess.STDOUT) if piped_output else (None, None)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=environment)


def assign(pipe: IO[bytes], work: bytes, rank: int, addresses: Sequence[str], fed: bool) -> None:
    """Send the assignment, a pickle, to the child as the first message on the pipe. `fed`: True if blocks follow.

    `work` is a pickle of (main, job). Only the child unpickles it, because this needs many imports.
    """
    write(pipe, pickle.dumps({"work": work, "rank": rank, "peers": addresses, "fed": fed}))


def write(pipe: IO[bytes], data: bytes) -> None:
    """Write and flush a message."""
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def write_end(pipe: IO[bytes]) -> None:
    """Write the mark for the end of the feed."""
    pipe.write(LENGTH.pack(END_OF_FEED))
    pipe.flush()


def read(pipe: IO[bytes]) -> bytes | None:
    """Read a message; return None at the end of the feed. Raises EOFError if the writer has ended."""
    header = pipe.read(LENGTH.size)
    if len(header) < LENGTH.size:
        raise EOFError("the feeding Spark task has ended")
    (length,) = LENGTH.unpack(header)
    if length == END_OF_FEED:
        return None
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the feeding Spark task ended inside a block")
    return data


class PipeFeed:
    """The trainer's end of the feed."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def next_block(self) -> bytes | None:
        with tracing.span(kinds.GET) as span:
            block = read(self._pipe)
            span.note(bytes=len(block or b""))
        return block

    def stop(self) -> None:
        """Close the pipe: the writer then fails with BrokenPipeError."""
        self._pipe.close()


def run() -> None:
    """Import TensorFlow, read the assignment, and train."""
    die_with_parent(signal.SIGKILL)  # a killed Spark task leaves no trainer behind
    tracing.start(os.environ.get("LOG_DIRS", ".").split(",")[0], "trainer")
    record_packages()
    pipe = sys.stdin.buffer
    import_tensorflow()
    with tracing.span(kinds.AWAIT_PLACE):
        message = read(pipe)
    # the pickle is safe: only the parent can write to the pipe
    assignment = pickle.loads(message or b"")
    tracing.identify(*role_of(assignment["rank"]))
    main, job = pickle.loads(assignment["work"])
    main(job, place(job, assignment["rank"], assignment["peers"], PipeFeed(pipe) if assignment["fed"] else None))
    tracing.flush()


if __name__ == "__main__":
    run()
