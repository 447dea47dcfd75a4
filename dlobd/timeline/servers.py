"""Builds the lanes of dlobd's parameter servers: one per worker of a server, as a server serves workers in parallel."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd.evidence.evidence import Evidence
from dlobd.schema import Span
from dlobd.timeline.builder import of_threads
from dlobd.timeline.ranks import is_server


def build(evidence: Evidence) -> Iterator[Span]:
    """Yield the recorded spans of all servers, in lanes such as ps-0/rank-1."""
    for process in evidence.processes:
        if is_server(evidence, process):
            yield from of_threads(f"ps-{process.process.index}", process, process.spans, lambda span, wait: wait)
