"""The lane of one rank: the trainer process from its fork to its end. Before the fork its executor prepares it."""

from __future__ import annotations

from typing import Any

from dlobd.importers.builder import OWN_MARK, LaneBuilder
from dlobd.importers.recorder import RecordedProcess, RecordedSpan
from dlobd.schema import Span


def lane_of(process: RecordedProcess) -> str:
    """rank-0 for the chief, rank-(i + 1) for worker i; other roles by their name."""
    role, index = process.process.role, process.process.index
    if role in ("chief", "worker"):
        return f"rank-{index if role == 'chief' else index + 1}"
    return f"{role}-{index}"


def build(process: RecordedProcess, executor: str, executor_start_ns: int) -> list[Span]:
    """A rank's spans.

    Args:
        executor: the lane of the executor whose Python worker forked the trainer.
        executor_start_ns: where that lane begins.
    """
    lane = LaneBuilder(lane_of(process), process.process)
    lane.add("launcher", "not yet forked", executor_start_ns, process.opened_ns, OWN_MARK, waits_for=(executor,))
    lane.add("tensorflow", "trainer process", process.opened_ns, process.last_ns, OWN_MARK)

    def resolve(span: RecordedSpan, wait: dict[str, Any]) -> dict[str, Any]:
        return {**wait, "waits_for": (executor,)} if wait.get("waits_for") == ["@feeder"] else wait

    lane.add_recorded(process, resolve=resolve)
    return lane.spans
