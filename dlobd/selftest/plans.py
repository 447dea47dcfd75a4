"""What is delayed in which run. A run's points are passed one after the other, so that several fit into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlobd.selftest.points import POINTS

EXPERIMENT = "softmax-mnist-quick"
SIZES_S = (0.05, 0.2, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: how it differs from `EXPERIMENT`, and the delays of each point in seconds, in their order.

    `own`: instead of the experiment a script runs as the user's own job."""

    name: str
    settings: tuple[str, ...]
    delays: Mapping[str, Sequence[float]]
    own: bool = False


# One rank, except where ranks wait for each other: if a second one could go on, a delay would hold up nothing.
_WAYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "feed": (
        ("workers=1",),
        (
            "client/exec", "yarn/queue", "yarn/localise", "spark/executor-start", "spark/python-start",
            "launcher/rendezvous", "spark/slow-task", "feed/put", "feed/get", "hdfs/write", "tensorflow/step",
        ),
    ),
    "read": (
        ("workers=1", "input=read"),
        ("client/exec", "yarn/localise", "hdfs/read", "hdfs/write", "tensorflow/step"),
    ),
    "ranks": (
        ("launcher=barrier", "deploy_mode=cluster"),
        ("yarn/queue", "tensorflow/step", "tensorflow/decode", "hdfs/write"),
    ),
    "channel": (
        ("launcher=barrier", "exchange=ring"),
        ("channel/pack", "channel/wait", "channel/wire", "channel/unpack"),
    ),
    "barrier": (
        ("launcher=barrier", "workers=1"),
        (
            "yarn/localise", "spark/executor-start", "spark/python-start", "launcher/rendezvous", "spark/slow-task",
            "feed/put", "tensorflow/step",
        ),
    ),
}  # fmt: skip
"""Name to settings and points."""


def quick() -> list[Plan]:
    """Four runs, which pass every point of dlobd's own job once at least."""
    ways = ("feed", "read", "ranks", "channel")
    return [_plan(name, 2 if name == "feed" else 1, (0.05, 0.5), 1.0) for name in ways]


def full() -> list[Plan]:
    """Every point with every size, in every way that passes it."""
    found = []
    for turn, size in enumerate(SIZES_S):
        found += [_plan(name, turn, SIZES_S, None) for name in _WAYS]
        other = SIZES_S[(turn + 1) % len(SIZES_S)]
        found.append(Plan(f"own-{turn}", ("workers=1",), {"user/script": [size], "user/task": [other]}, own=True))
    return found


def _plan(name: str, turn: int, often: Sequence[float], once: float | None) -> Plan:
    settings, points = _WAYS[name]
    delays = {}
    for number, point in enumerate(points):
        if POINTS[point].often:
            # two sizes a run, so that no run takes minutes
            delays[point] = often if len(often) <= 2 else [often[turn], often[(turn + 1) % len(often)]]
        else:
            delays[point] = [once if once is not None else SIZES_S[(turn + number) % len(SIZES_S)]]
    return Plan(f"{name}-{turn}", (*settings, "checkpoint_every_steps=1000"), delays)
