"""Adds torchrun's agents to the lane that waits for them: of an executor, or of the driver in local mode.

torchrun starts -> import torch -> rendezvous -> start ranks -> sleeps that wait for a rank -> exit barrier
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedSpan
from dlobd.spans import Details
from dlobd.timeline.builder import OWN_MARK, LaneBuilder
from dlobd.timeline.ranks import Rank
from dlobd.tracing.clock import tick_ns


def add_agents(lane: LaneBuilder, evidence: Evidence, directory: str, ranks: Sequence[Rank]) -> None:
    """Add the spans of all agents that recorded in this directory."""
    here = evidence.recorded_in(directory)
    commands = sorted((span for one in here for span in one.named(kinds.TORCHRUN)), key=lambda span: span.start_ns)
    for process in here:
        who = process.process
        if who.role != kinds.TORCHRUN_ROLE:
            continue
        bounds, tick = (who.start_ns, process.opened_ns, f"/proc, {OWN_MARK}"), tick_ns()
        lane.add(kinds.TORCHRUN_STARTS, *bounds, resolution_ns=tick, process=who)
        lane.add_recorded(process, resolve=partial(_resolve, [r for r in ranks if r.process.parent == who.pid]))
        # the last command that began before its agent, and that is not the command of an earlier agent
        begun = [span for span in commands if span.start_ns < process.opened_ns]
        if begun:
            commands.remove(begun[-1])
            bounds = begun[-1].start_ns, who.start_ns, f"{OWN_MARK}, /proc"
            lane.add(kinds.TORCHRUN_WRAPPER_STARTS, *bounds, resolution_ns=tick, process=who)
            lane.add(kinds.TORCHRUN_EXITS, process.last_ns, begun[-1].end_ns, OWN_MARK)


def _resolve(own: Sequence[Rank], span: RecordedSpan, wait: Details) -> Details:
    """Let a sleep of the agent wait for the last of its training processes; the rest of the sleep is its poll."""
    if span.kind is not kinds.SLEEP:
        return wait
    rank = max((r for r in own if r.start_ns < span.end_ns), key=lambda rank: rank.finished, default=None)
    if rank is None:
        return {**wait, "waits_for": ()}
    unfinished, done_ns = rank.finished
    at_work = unfinished or done_ns >= span.end_ns
    return {**wait, "waits_for": (rank.lane,), "released_ns": None if at_work else max(done_ns, span.start_ns)}
