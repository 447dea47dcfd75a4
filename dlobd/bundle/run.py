"""A run as its run.json tells it, typed: what reports, frames, comparisons and verification read.

`Run.from_json` is the one place in which a record becomes a Run. Parts that are the data model's own (layers, clips,
events) are those of `dlobd.schema`. None stands for what is unknown: not measured, or the run ended before it could be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dlobd.bundle.finding import Finding
from dlobd.bundle.noise import Noise
from dlobd.bundle.resources import CoreWaits, EnvironmentCache, Import, PageCache, ResourceUse, SparkMetrics
from dlobd.bundle.transport import ExchangeUse, Plane
from dlobd.schema import (
    Clip,
    Event,
    Experiment,
    Interval,
    LayerTime,
    NotMeasured,
    OwnJob,
    Runnable,
    Status,
)


@dataclass(frozen=True, slots=True)
class Window:
    """What the wall time covers: [start_ns, end_ns) of the clock domain `clock`. `name` is for people."""

    name: str
    start_ns: int
    end_ns: int
    clock: str


@dataclass(frozen=True, slots=True)
class HdfsUse:
    """What HDFS was used for: operations, bytes, and time as a number or as an interval; sums over all lanes."""

    purpose: str
    operations: int | None
    bytes: int | None
    ns: int | None
    lo_ns: int | None
    hi_ns: int | None
    source_begin: str
    source_end: str


@dataclass(frozen=True, slots=True)
class RankSteps:
    """A rank's steps. For the user's own script only `main_ns`, the length of its main function, is known."""

    role: str
    index: int
    steps: int | None
    step_p50_ns: int | None
    step_p99_ns: int | None
    step_max_ns: int | None
    first_step_ns: int | None = None
    feed_wait_ns: int | None = None
    main_ns: int | None = None
    device: str | None = None
    cores: int | None = None
    intra_op_threads: int | None = None  # 0: TensorFlow's own choice
    inter_op_threads: int | None = None

    @property
    def name(self) -> str:
        """Role and index: chief 0."""
        return f"{self.role} {self.index}"


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of lengths of steps; None where there are too few steps for that quantile."""

    p50_ns: int | None
    p90_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Samples a second of the whole job, after its first steps. See `dlobd.attribution.throughput`."""

    warmup_steps: int
    steps: int
    samples_per_step: int
    mean: float
    uncertainty: float
    jitter: float
    step: Quantiles
    step_with_input: Quantiles


@dataclass(frozen=True, slots=True)
class Epoch:
    """A pass over the training samples: `ns` of it, the mean loss of its steps, and what the test set then said.

    `evaluation_ns` is the time from its end until its accuracy was known.
    """

    epoch: int
    end_ns: int
    ns: int
    loss: float
    test_samples: int | None
    test_accuracy: float | None
    evaluation_ns: int | None

    @property
    def known_ns(self) -> int | None:
        """When its accuracy was known; None where it never was."""
        return self.end_ns + self.evaluation_ns if self.evaluation_ns is not None else None


@dataclass(frozen=True, slots=True)
class TimeToAccuracy:
    """From submit, and from the first touch of the data, until a test accuracy of `target` was known.

    Where it was not reached, `epoch` and times are None, and `reason` says what was."""

    target: float
    epoch: int | None
    from_submit_ns: int | None
    from_first_touch_ns: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class LoopCost:
    """What recording cost the training loop of the slowest rank: `ns` of `length_ns`."""

    rank: str
    length_ns: int
    spans: int
    ns: int | None
    share: float | None


@dataclass(frozen=True, slots=True)
class RecordingCost:
    """What recording a run has cost. See `dlobd.attribution.recording_cost`."""

    recording: Literal["on", "off"]
    span_cost_ns: int | None
    spans: int
    lines: int
    lost_lines: int
    left_out: int | None
    flush_ns: int | None
    flush_cpu_ns: int | None
    span_bytes: int
    log_bytes: int
    chain_spans: int
    chain_ns: int | None
    chain_share: float | None
    loop: LoopCost | None


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold before a run's numbers count. `ok` is None where the evidence to decide is missing."""

    check: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Audit:
    """Two figures of one quantity, and where each is from. `detail` is the rule, or why the verdict is unknown."""

    audit: str
    verdict: Literal["pass", "fail", "unknown"]
    left: int | None
    left_source: str
    right: int | None
    right_source: str
    detail: str

    @property
    def figures(self) -> str:
        """One line: both figures, with their sources."""
        return f"{self.audit}: {self.left} ({self.left_source}), {self.right} ({self.right_source})"


@dataclass(frozen=True, slots=True)
class Checkout:
    """The state of dlobd's own checkout."""

    commit: str | None
    dirty: bool | None


Metric = int | float | str | None | list[Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One execution, immutable. `docs/metrics.md` says how each number is computed."""

    schema_version: int
    run_id: str
    status: Status
    reason: str | None  # why the status is not ok
    experiment: str
    experiment_key: str
    configuration: Runnable
    started_at: str
    command: tuple[str, ...]
    window: Window | None
    wall_ns: int | None
    layers: tuple[LayerTime, ...]
    unattributed_ns: int | None
    not_measured: tuple[NotMeasured, ...]
    clips: tuple[Clip, ...]
    metrics: Mapping[str, Metric]
    startup: tuple[Event, ...]
    teardown: tuple[Event, ...]
    hdfs: tuple[HdfsUse, ...]
    ranks: tuple[RankSteps, ...]
    setup: Mapping[str, int | None]
    overhead: RecordingCost | None
    audits: tuple[Audit, ...] | None  # None: not requested
    noise: Noise | None
    platform: Mapping[str, Any]
    versions: Mapping[str, str | None]
    git: Checkout | None
    seeds: Mapping[str, int]
    throughput: Throughput | None = None
    epochs: tuple[Epoch, ...] = ()
    first_touch: Event | None = None
    time_to_accuracy: TimeToAccuracy | None = None
    intervals: tuple[Interval, ...] = ()
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    page_cache: PageCache | None = None  # None: not known
    environment_cache: EnvironmentCache | None = None  # None: nobody looked
    resources: ResourceUse | None = None  # None: not sampled
    core_waits: CoreWaits | None = None  # None: no thread was read
    imports: tuple[Import, ...] = ()
    spark_metrics: SparkMetrics | None = None  # None: no task ended
    transport: tuple[Plane, ...] | None = None  # None: not examined, as for the user's own script
    exchange: tuple[ExchangeUse, ...] = ()  # of each rank; none where it is inside of the step
    findings: tuple[Finding, ...] = ()  # largest saving first

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Run:
        """The run of a run.json of this version; `dlobd.bundle.store` validates it.

        Raises:
            KeyError, TypeError: it is not one.
        """
        run: Run = _built(cls, record)
        return run

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return dataclasses.asdict(self)

    @property
    def own(self) -> bool:
        """Whether the user's own script was run."""
        return isinstance(self.configuration, OwnJob)

    @property
    def busy(self) -> bool:
        """Whether other processes of the machine held the run up; False where nobody could tell."""
        return bool(self.core_waits and self.core_waits.busy)

    @property
    def unexplained_ns(self) -> int:
        """Time of the wall that no evidence explains, inside layers and outside of them."""
        return (self.unattributed_ns or 0) + sum(layer.unexplained_ns for layer in self.layers)

    def from_submit_ns(self, epoch: Epoch) -> int | None:
        """From the start of the window until an epoch's accuracy was known."""
        return epoch.known_ns - self.window.start_ns if self.window and epoch.known_ns is not None else None

    def from_first_touch_ns(self, epoch: Epoch) -> int | None:
        """From the first touch of the data until an epoch's accuracy was known."""
        touched = self.first_touch
        return epoch.known_ns - touched.at_ns if touched and epoch.known_ns is not None else None

    def event_ns(self, name: str) -> int | None:
        """When an event of start-up or teardown happened; of one that every rank has, the last one."""
        return max((event.at_ns for event in (*self.startup, *self.teardown) if event.event == name), default=None)


def _built(kind: Any, value: Any) -> Any:
    """`value`, of JSON, as `kind`: a dataclass, a tuple, an optional or a plain value."""
    if value is None or kind is Any:
        return value
    if kind == Runnable:
        kind = OwnJob if "script" in value else Experiment
    elif get_origin(kind) in (Union, UnionType):
        kind = next(
            (member for member in get_args(kind) if get_origin(member) or dataclasses.is_dataclass(member)), Any
        )
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _built(hints[name], part) for name, part in value.items() if name in hints})
    if get_origin(kind) is tuple:
        members = get_args(kind)
        if members[-1] is Ellipsis:
            return tuple(_built(members[0], part) for part in value)
        return tuple(_built(member, part) for member, part in zip(members, value, strict=True))
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
