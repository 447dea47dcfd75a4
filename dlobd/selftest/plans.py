"""Plans: the delays of each run. A run passes its points one after the other, so that it can have several delays.

In each block of a full self-test, every way of running runs twice, in random order: with its delays, and as a control.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from dlobd.selftest.injection_points import POINTS

EXPERIMENT = "softmax-mnist-quick"
SIZES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Durations of the delays: one per block and point. A 95 % confidence interval needs six blocks."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of one run: its differences from `EXPERIMENT`, and the delays of each point in seconds, 0 in a control.

    own: True if a script runs as the user's own job, instead of the experiment.
    disk_bytes_per_s: limit of the DataNodes' disk reads; 0 for no limit.
    attempt: number of the repetition; 0 for the first run.
    """

    way: str
    block: int
    settings: tuple[str, ...]
    delays: Mapping[str, Sequence[float]]
    own: bool = False
    disk_bytes_per_s: int = 0
    attempt: int = 0

    @property
    def control(self) -> bool:
        return not any(map(any, self.delays.values())) and not self.disk_bytes_per_s

    @property
    def name(self) -> str:
        """Name that is unique in a self-test."""
        suffix = "-control" if self.control else f"-repeat-{self.attempt}" if self.attempt else ""
        return f"{self.way}-{self.block}{suffix}"

    @property
    def cluster_mode(self) -> bool:
        """True if the driver runs in the ApplicationMaster."""
        return "deploy_mode=cluster" in self.settings

    def repeat(self, points: Collection[str], attempt: int) -> Self:
        """Return the repetition of some points. The user's own job needs all of its points."""
        delays = {point: seconds for point, seconds in self.delays.items() if self.own or point in points}
        return replace(self, delays=delays, disk_bytes_per_s=0, attempt=attempt)


_START = """
    client/exec yarn/new-application yarn/submit yarn/queue yarn/localise yarn/register yarn/request
    yarn/start-executor yarn/localise-executor
    spark/submit-start spark/submit-boot spark/driver-start spark/import-pyspark spark/context spark/env
    spark/scheduler spark/rm-proxy spark/staging spark/prepare spark/am-start spark/am-boot spark/am-name
    spark/am-login spark/am-staging spark/am-connect spark/am-request spark/am-allocator spark/am-launch
    spark/executor-start spark/executor-boot spark/executor-main spark/executor-log4j spark/executor-name
    spark/executor-login spark/executor-settings spark/executor-env spark/executor-register spark/task
    spark/broadcast spark/function spark/python-start hdfs/staging hdfs/upload """
"""Points that every job on YARN passes before the training."""

_BRIEF = """
    client/exec yarn/submit yarn/queue yarn/register spark/submit-start spark/context spark/am-start
    spark/executor-start spark/task spark/python-start hdfs/staging """
"""Selection of the points in `_START`, for ways that start like another way."""

# One rank, except where ranks wait for each other: a second rank could continue, and hide the delay.
_WAYS: Mapping[str, tuple[str, str]] = {
    "feed": (
        "workers=1",
        f"""{_START} hdfs/splits spark/splits launcher/rendezvous spark/slow-task feed/put feed/get tensorflow/import
        tensorflow/first-step tensorflow/step hdfs/write spark/stop hdfs/event-log spark/exit""",
    ),
    "read": (
        "workers=1 input=read",
        f"{_BRIEF} hdfs/read tensorflow/import tensorflow/step hdfs/write spark/stop hdfs/event-log spark/exit",
    ),
    "feed-cluster": (
        "workers=1 deploy_mode=cluster",
        f"""{_START} spark/block-manager spark/splits launcher/rendezvous feed/put feed/get tensorflow/import
        hdfs/write""",
    ),
    "read-cluster": (
        "workers=1 input=read deploy_mode=cluster",
        f"{_BRIEF} hdfs/read tensorflow/import tensorflow/step hdfs/write",
    ),
    "ranks": (
        "launcher=barrier deploy_mode=cluster",
        "yarn/queue spark/block-manager tensorflow/step tensorflow/decode hdfs/write",
    ),
    "channel": ("launcher=barrier exchange=ring", "channel/pack channel/wait channel/wire channel/unpack"),
    "barrier": (
        "launcher=barrier workers=1",
        f"""{_BRIEF} spark/splits launcher/rendezvous spark/open-input spark/slow-task feed/put tensorflow/step
        hdfs/model""",
    ),
}
"""Name of a way -> its settings and points."""

_DISK = ("workers=1", "input=read", "page_cache=cold", "checkpoint_every_steps=1000")
_DISK_BYTES_PER_S = 1_000_000
"""The training data takes a few seconds at this rate, much longer than the training."""


def quick() -> list[Plan]:
    """Return five runs that pass every point of dlobd's own job."""
    ways = ("feed", "read", "ranks", "channel", "barrier")
    return [_plan(name, 2 if name == "feed" else 1, (0.05, 0.5), 0.5) for name in ways]


def full(seed: int = 0, slow_disk: bool = False) -> list[Plan]:
    """Return runs with every point and size, in every way that passes the point, and as many controls.

    `slow_disk`: True if the disk of the DataNodes can be slowed on this machine."""
    plans: list[Plan] = []
    for block, size in enumerate(SIZES_S):
        other = SIZES_S[(block + 1) % len(SIZES_S)]
        # two sizes per run, so that no run takes minutes
        ways = [_plan(name, block, (size, other)) for name in _WAYS]
        delays = {"user/script": [size], "user/import": [size], "user/task": [other]}
        ways.append(Plan("own", block, ("workers=1",), delays, own=True))
        if slow_disk:
            ways.append(Plan("disk", block, _DISK, {}, disk_bytes_per_s=_DISK_BYTES_PER_S))
        order = random.Random(f"{seed} {block}")
        order.shuffle(ways)
        for way in ways:
            none = {point: [0.0] * len(delays) for point, delays in way.delays.items()}
            pair = [way, Plan(way.way, block, way.settings, none, way.own)]
            order.shuffle(pair)
            plans += pair
    return plans


def _plan(way: str, block: int, often: Sequence[float], once: float | None = None) -> Plan:
    settings, points = _WAYS[way]
    delays = {
        point: often if POINTS[point].often else [once or SIZES_S[(block + number) % len(SIZES_S)]]
        for number, point in enumerate(points.split())
    }
    return Plan(way, block, (*settings.split(), "checkpoint_every_steps=1000"), delays)
