"""Adds torchrun's agents to the lane that waits for them: of an executor, or of the driver in local mode.

torchrun starts -> import torch -> rendezvous -> start ranks -> sleeps that wait for a rank -> exit barrier
"""

from collections.abc import Callable, Sequence
from functools import partial

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.spans import Details
from dlobd.timeline.builder import OWN_MARK, LaneBuilder
from dlobd.timeline.ranks import Rank
from dlobd.tracing.clock import tick_ns


def add_agents(
    lane_at: Callable[[RecordedProcess, int], LaneBuilder], here: Sequence[RecordedProcess], ranks: Sequence[Rank]
) -> None:
    """Add the spans of all agents. `lane_at`: returns the lane of a process that starts torchrun at a time."""
    for agent in here:
        called = agent.instant(kinds.TORCHRUN_CALLED)
        starter = next((one for one in here if called and one.process.pid == called.attrs["pid"]), None)
        if starter is None:
            continue
        calls = [span for span in starter.named(kinds.TORCHRUN) if span.start_ns < agent.opened_ns]
        if not calls:
            continue  # the starter's record is incomplete
        command = calls[-1]
        who, tick = agent.process, tick_ns()
        lane = lane_at(starter, command.start_ns)
        bounds = command.start_ns, who.start_ns, f"{OWN_MARK}, /proc"
        lane.add(kinds.TORCHRUN_WRAPPER_STARTS, *bounds, resolution_ns=tick, process=who)
        bounds = who.start_ns or command.start_ns, agent.opened_ns, f"/proc, {OWN_MARK}"
        lane.add(kinds.TORCHRUN_STARTS, *bounds, resolution_ns=tick, process=who)
        lane.add_recorded(agent, resolve=partial(_resolve, [r for r in ranks if r.process.parent == who.pid]))
        lane.add(kinds.TORCHRUN_EXITS, agent.last_ns, command.end_ns, OWN_MARK)


def _resolve(own: Sequence[Rank], span: RecordedSpan, wait: Details) -> Details:
    """Let a sleep of the agent wait for the last of its training processes."""
    if span.kind is not kinds.SLEEP:
        return wait
    rank = max((r for r in own if r.start_ns < span.end_ns), key=lambda rank: rank.finished, default=None)
    return {**wait, **(rank.releases(span) if rank else {"waits_for": ()})}
