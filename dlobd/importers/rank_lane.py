"""The lane of one rank: the trainer process from its fork to its end. Before the fork its executor prepares it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlobd.importers.builder import OWN_MARK, LaneBuilder
from dlobd.importers.recorder import RecordedProcess, RecordedSpan
from dlobd.schema import Span

Resolve = Callable[[RecordedSpan, dict[str, Any]], dict[str, Any]]


def lane_of(process: RecordedProcess) -> str:
    """rank-0 for the chief, rank-(i + 1) for worker i; other roles by their name."""
    role, index = process.process.role, process.process.index
    if role in ("chief", "worker"):
        return f"rank-{index if role == 'chief' else index + 1}"
    return f"{role}-{index}"


def reader_of(process: RecordedProcess) -> str:
    """The lane of the threads in which tf.data reads and decodes for this rank; one works at a time."""
    return f"{lane_of(process)}/reader"


def build(
    process: RecordedProcess,
    executor: str,
    executor_start_ns: int,
    in_task: bool,
    exit_ns: int | None,
    resolve: Resolve,
) -> list[Span]:
    """A rank's spans.

    Args:
        executor: the lane of the executor whose Python worker forked the trainer, or is it.
        executor_start_ns: where that lane begins.
        in_task: whether the trainer is the Python worker itself, inside its Spark task.
        exit_ns: when its parent saw it end, if the parent waited for it.
        resolve: names the lanes of recorded waits that are not this rank's own.
    """
    lane = LaneBuilder(lane_of(process), process.process)
    start_ns = process.opened_ns if process.forked else process.process.start_ns or process.opened_ns
    lane.add("launcher", "not yet forked", executor_start_ns, start_ns, OWN_MARK, waits_for=(executor,))
    root = ("spark", "Python worker") if in_task else ("tensorflow", "trainer process")
    lane.add(*root, start_ns, process.last_ns, OWN_MARK if process.forked else f"/proc, {OWN_MARK}")

    lane.add("tensorflow", "trainer process exits", process.last_ns, exit_ns, OWN_MARK)

    def own(span: RecordedSpan, wait: dict[str, Any]) -> dict[str, Any]:
        target = {"@feeder": executor, "@reader": reader_of(process)}.get(next(iter(wait.get("waits_for", ())), ""))
        return {**wait, "waits_for": (target,)} if target else resolve(span, wait)

    lane.add_recorded(process, resolve=own)
    reader = LaneBuilder(reader_of(process), process.process)
    reader.add_recorded(process, [span for span in process.spans if span.thread], resolve=own)
    return [*lane.spans, *reader.spans]
