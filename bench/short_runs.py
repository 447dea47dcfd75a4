"""Record many runs of a short process, without TensorFlow or a cluster, to count false alarms of `dlobd compare`.

    python -m bench.short_runs FILE [--runs N] [--seconds S]

A run is a forked process with dlobd's recorder, like Spark's Python workers. The command appends a batch to FILE (CSV,
compressed by gzip). A line has nanoseconds of a run's wall time, from before the fork to the exit, and of its layers.
The command ends after N runs or S seconds, whichever comes first.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import signal
import socket
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import NoReturn

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Span, Spans, Trace
from dlobd.evidence import recorder
from dlobd.schema import MAIN_LANE, Process

LAYERS = ("launcher", "hdfs", "feed", "channel", "tensorflow")
"""Layers in the order of columns, used for: fork, recorder and exit; a file; a pipe; a socket; arithmetic."""

COLUMNS = ("batch", "wall_ns", *(f"{layer}_ns" for layer in LAYERS))

TIMEOUT_S = 60
FILE_BYTES = 1 << 20
BLOCKS, BLOCK_BYTES = 32, 1 << 15  # a block fits into the pipe's buffer
ROUND_TRIPS = 100
MESSAGE = bytes(1024)
PRODUCTS = 100_000


def work(directory: Path) -> None:
    """Do and record some work in each layer except the launcher; span files go to `directory`."""
    tracing.start(directory, "driver")
    with tracing.span(kinds.SpanKind("write and read", "hdfs")):
        path = directory / "data"
        path.write_bytes(bytes(FILE_BYTES))
        zlib.crc32(path.read_bytes())
    with tracing.span(kinds.GET):
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb", buffering=0) as end, os.fdopen(reading, "rb") as begin:
            for _ in range(BLOCKS):
                end.write(bytes(BLOCK_BYTES))
                begin.read(BLOCK_BYTES)
    with tracing.span(kinds.SpanKind("all-reduce", "channel")):
        one, other = socket.socketpair()
        with one, other:
            for sender, receiver in [(one, other), (other, one)] * ROUND_TRIPS:
                sender.sendall(MESSAGE)
                receiver.recv(len(MESSAGE), socket.MSG_WAITALL)
    with tracing.span(kinds.STEP):
        sum(number * number for number in range(PRODUCTS))
    tracing.flush()


def measure(directory: Path) -> dict[str, int]:
    """Run `work` in a forked process; return `wall_ns` and each layer's nanoseconds, which sum to the wall time.

    Raises:
        ChildProcessError: the process failed, or took more than `TIMEOUT_S`.
    """
    start_ns = time.monotonic_ns()
    child = os.fork()
    if not child:
        _run_and_exit(directory)
    _, status = os.waitpid(child, 0)
    end_ns = time.monotonic_ns()
    if status:
        raise ChildProcessError(f"a short run ended with wait status {status}")
    client = Process("localhost", "client", 0, os.getpid())
    spans = [Span("process", None, kinds.SpanKind("process", "launcher"), client, MAIN_LANE, start_ns, end_ns)]
    for recorded in recorder.processes(recorder.read_files(directory)):
        for one in recorded.spans:
            kind = kinds.SpanKind(one.name, one.layer)
            spans.append(Span(str(one.id), "process", kind, recorded.process, MAIN_LANE, one.start_ns, one.end_ns))
    found = attribute(Trace(start_ns, end_ns, Spans.of(spans)))
    given = {row.layer: row.ns for row in found.layers}
    return {"wall_ns": found.wall_ns, **{f"{layer}_ns": given[layer] for layer in LAYERS}}


def _run_and_exit(directory: Path) -> NoReturn:
    signal.alarm(TIMEOUT_S)
    code = 1
    try:
        work(directory)
        code = 0
    finally:
        os._exit(code)


def read(path: Path) -> list[dict[str, int]]:
    """Read the recorded runs in order, with the keys of `COLUMNS`."""
    with gzip.open(path, "rt", newline="") as file:
        return [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]


def record(path: Path, runs: int, seconds: float) -> int:
    """Append runs to a file (CSV, compressed by gzip) as a new batch; return the number of runs within `seconds`."""
    earlier = read(path) if path.exists() else []
    batch = max((row["batch"] for row in earlier), default=0) + 1
    until_s = time.monotonic() + seconds
    done = 0
    with gzip.open(path, "at", newline="") as file:
        lines = csv.DictWriter(file, COLUMNS)
        if not earlier:
            lines.writeheader()
        while done < runs and time.monotonic() < until_s:
            with tempfile.TemporaryDirectory(prefix="short-process-") as directory:
                lines.writerow({"batch": batch, **measure(Path(directory))})
            done += 1
    return done


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=240.0)
    asked = parser.parse_args()
    print(f"{record(asked.file, asked.runs, asked.seconds)} runs appended to {asked.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
