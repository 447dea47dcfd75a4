"""A trainer's own process: `python -m dlobd.job.launchers.child`, started by a barrier task.

TensorFlow is imported before the parent has said anything, so that the import overlaps with the rendezvous.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import BinaryIO

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.job.launchers import pipe as pipes
from dlobd.job.launchers.base import place, role_of
from dlobd.job.launchers.framework import import_tensorflow
from dlobd.job.launchers.imports import record_packages


class _PipeFeed:
    """The trainer's end of the feed."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def next_block(self) -> bytes | None:
        with tracing.span(kinds.GET) as span:
            block = pipes.read(self._pipe)
            span.note(bytes=len(block or b""))
        return block

    def stop(self) -> None:
        self._pipe.close()  # which its writer notices


def run() -> None:
    """Imports TensorFlow, hears its place, and trains."""
    die_with_parent(signal.SIGKILL)  # a killed Spark task leaves no trainer behind
    tracing.start(os.environ.get("LOG_DIRS", ".").split(",")[0], "trainer")
    record_packages()
    pipe = sys.stdin.buffer
    import_tensorflow()
    with tracing.span(kinds.AWAIT_PLACE):
        message = pipes.read(pipe)
    told = pickle.loads(message or b"")  # from the parent, over a pipe that no other process has
    tracing.identify(*role_of(told["rank"]))
    main, job = pickle.loads(told["work"])
    main(job, place(job, told["rank"], told["peers"], _PipeFeed(pipe) if told["fed"] else None))
    tracing.flush()


if __name__ == "__main__":
    run()
