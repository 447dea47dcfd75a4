"""What a run used, as its run.json tells it: by sampling, and by Spark's own word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class HostUse:
    """What one machine used in the window. `sampled_ns` of it lie between the first sample and the last."""

    host: str
    machine: str  # whose it is
    cores: int
    memory_bytes: int
    sampled_ns: int
    cpu_busy_ns: int
    cpu_stolen_ns: int
    processes_cpu_ns: int
    unseen_cpu_ns: int
    memory_used_peak_bytes: int
    disk_read_bytes: int | None
    disk_written_bytes: int | None
    loopback_bytes: int | None
    net_received_bytes: int
    net_sent_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process used in the window, or `count` others of one name together, which have no pid."""

    role: str
    index: int
    pid: int | None
    name: str
    count: int
    cpu_ns: int
    rss_peak_bytes: int
    read_bytes: int | None
    write_bytes: int | None


@dataclass(frozen=True, slots=True)
class LayerUse:
    """What the machine of dlobd used while the attributed time was a layer's; None where none of it was sampled."""

    layer: str
    ns: int
    sampled_ns: int
    cpu_busy_share: float | None
    gpu_busy_share: float | None
    cpu_busy_ns: int | None
    disk_read_bytes: int | None
    disk_written_bytes: int | None
    loopback_bytes: int | None
    net_received_bytes: int | None
    net_sent_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What one GPU of the machine of dlobd was used for in the window."""

    index: int
    name: str
    memory_bytes: int
    busy_share: float | None
    memory_used_peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources by sampling. See `dlobd.attribution.resource_use`."""

    period_ns: int
    samples: int
    longest_gap_ns: int
    cost_ns: int
    hosts: tuple[HostUse, ...]
    processes: tuple[ProcessUse, ...]
    layers: tuple[LayerUse, ...]
    gpus: tuple[GpuUse, ...]


@dataclass(frozen=True, slots=True)
class LaneTime:
    """How a part of the wall passed for the threads that carried it. The last four sum to `ns`, but for `lo` and `hi`,
    which bound what readings leave open."""

    ns: int
    on_core_lo_ns: int
    on_core_hi_ns: int
    waiting_lo_ns: int
    waiting_hi_ns: int
    on_core_ns: int
    waiting_ns: int  # for a core
    blocked_ns: int
    unknown_ns: int


@dataclass(frozen=True, slots=True)
class LayerWaits(LaneTime):
    """The same of a layer."""

    layer: str = ""


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """What the kernel counted of one process in the window; sums over threads are thread time, no part of the wall."""

    host: str
    role: str
    index: int
    pid: int
    source: str
    main_on_core_ns: int | None  # of the threads that carry its lane by turns
    main_waiting_ns: int | None
    on_core_ns: int | None  # of all, ended ones too
    waiting_ns: int | None  # of all that were seen
    ended_on_core_ns: int | None
    read_bytes: int | None
    major_faults: int | None
    block_io_ns: int | None


@dataclass(frozen=True, slots=True)
class Pressure:
    """For how long some task of a host waited for a core, and some was blocked by a disk."""

    host: str
    sampled_ns: int
    cpu_ns: int
    io_ns: int


@dataclass(frozen=True, slots=True)
class CoreWaits:
    """How the wall passed: on a core, waiting for one, or blocked. See `dlobd.attribution.core_waits`.

    `busy` is whether the run was held up by other processes; None where these cannot be told from its own.
    """

    whole: LaneTime
    layers: tuple[LayerWaits, ...]
    unknown: tuple[tuple[str, int], ...]
    processes: tuple[ThreadUse, ...]
    pressure: tuple[Pressure, ...]
    foreign_cpu_ns: int | None
    held_up_ns: int | None
    busy: bool | None


CacheState = Literal["cold", "partly", "warm"]

COLD, WARM = 0.5, 0.9
"""Files of which less than half was in memory are cold, those of which nine tenths were are warm. What two starts of
one job touch of their environment differs by a few percent, so that none finds all of it."""


def cache_state(share: float) -> CacheState:
    """Of files of which that share was in memory."""
    return "cold" if share < COLD else "warm" if share >= WARM else "partly"


@dataclass(frozen=True, slots=True)
class PageCache:
    """What the machine had of the training files in memory when the window began: of HDFS, of their blocks."""

    asked: str
    resident_bytes: int
    total_bytes: int  # of HDFS, of all replicas
    before_resident_bytes: int  # before it was warmed, or dropped

    @property
    def state(self) -> CacheState | None:
        """Whether the run began with its training files in memory; None where there are none."""
        return cache_state(self.resident_bytes / self.total_bytes) if self.total_bytes else None


@dataclass(frozen=True, slots=True)
class EnvironmentPart:
    """Of some files of a job's environment, what was in memory before the job and after it."""

    part: str
    state: CacheState | None  # None: not used, or the kernel did not say
    total_bytes: int | None
    before_bytes: int | None
    after_bytes: int | None

    @property
    def share(self) -> float | None:
        """Of what the job needed of it: what was there before."""
        return self.there_bytes / self.after_bytes if self.there_bytes is not None and self.after_bytes else None

    @property
    def there_bytes(self) -> int | None:
        """Bytes of what the job needed that were there before; None where it is not known."""
        if self.before_bytes is None or self.after_bytes is None:
            return None
        return min(self.before_bytes, self.after_bytes)


@dataclass(frozen=True, slots=True)
class EnvironmentCache:
    """Whether a run began with its environment in memory. See `dlobd.attribution.environment_cache`."""

    state: CacheState | None  # of the coldest part
    parts: tuple[EnvironmentPart, ...]

    @property
    def share(self) -> float | None:
        """Of the coldest part; None if none is known."""
        known = [part.share for part in self.parts if part.state and part.share is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Import:
    """How long a process took to import a Python package for `by`, another one; empty: for the program itself.

    `own_ns` is without what that package imported in turn."""

    role: str
    index: int
    pid: int
    package: str
    by: str
    ns: int
    own_ns: int


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """One attempt of a Spark stage; `metrics` as in SparkMetrics."""

    stage: int
    attempt: int
    call: str | None
    skew_ns: int
    metrics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SparkMetrics:
    """What Spark says of its tasks: `metrics` has sparkMeasure's names and units. See
    `dlobd.attribution.spark_metrics`."""

    metrics: Mapping[str, int]
    failed_tasks: int
    skew_ns: int
    stages: tuple[StageMetrics, ...]
