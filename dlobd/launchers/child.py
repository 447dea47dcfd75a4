"""A trainer's own process: `python -m dlobd.launchers.child`, started by a barrier task.

TensorFlow is imported before the parent has said anything, so that the import overlaps with the rendezvous.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from typing import BinaryIO

from dlobd import trace
from dlobd.launchers.barrier import END_OF_FEED, LENGTH
from dlobd.launchers.base import Node
from dlobd.launchers.framework import import_tensorflow

_PR_SET_PDEATHSIG = 1


class _PipeFeed:
    """The trainer's end of the feed."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def next_block(self) -> bytes | None:
        with trace.span("feed", "get", {"waits_for": ["@feeder"]}) as span:
            block = _message(self._pipe)
            span.note(bytes=len(block or b""))
        return block


def _message(pipe: BinaryIO) -> bytes | None:
    """One message; None at the end of the feed. Raises EOFError if the parent is gone."""
    header = pipe.read(LENGTH.size)
    if len(header) < LENGTH.size:
        raise EOFError("the feeding Spark task is gone")
    (length,) = LENGTH.unpack(header)
    if length == END_OF_FEED:
        return None
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the feeding Spark task ended inside a block")
    return data


def run() -> None:
    """Imports TensorFlow, hears its place, and trains."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed Spark task leaves no trainer behind
    trace.start(os.environ.get("LOG_DIRS", ".").split(",")[0], "trainer")
    pipe = sys.stdin.buffer
    import_tensorflow()
    with trace.span("launcher", "await place", {"waits_for": ["@feeder"]}):
        message = _message(pipe)
    place = pickle.loads(message or b"")  # from our parent, over a pipe that nobody else has
    trace.identify(place["role"], place["index"])
    os.environ["TF_CONFIG"] = place["TF_CONFIG"]
    feed = _PipeFeed(pipe) if place["fed"] else None
    main, job = pickle.loads(place["work"])
    main(job, Node(place["role"], place["index"], place["ranks"], feed))
    trace.flush()


if __name__ == "__main__":
    run()
