"""Reading of the processes that recorded spans in a directory."""

from __future__ import annotations

from pathlib import Path

from dlobd.bundle import reading
from dlobd.evidence import recorder
from dlobd.evidence.recorder import RecordedProcess


def lines_of(path: Path) -> list[str]:
    """Read the lines of a span file, compressed or not."""
    return [line.decode(errors="replace") for block in reading.blocks(path) for line in block]


def read_all(directory: Path) -> list[RecordedProcess]:
    """Read the processes of all span files, in the order in which they opened their files."""
    return recorder.processes(recorder.read_files(directory))
