"""The data model: frozen, stdlib only, the same on the driver, on executors and in analysis.

All times are integers of nanoseconds on CLOCK_MONOTONIC of one clock domain (host, boot, time namespace).

Schema history of run.json
    1   first version
    2   `configuration` has `replication` and `accept_timeout_s`, and may be an OwnJob, which has a `script`
    3   `audits`, `noise` and `overhead`: what recording has cost; null in older records
    4   `reason` was `cause`: why a run is not ok; a cause is a named wait. `configuration` has `optimiser` and `loss`
    5   `configuration` has `momentum`, `weight_decay`, the learning rate's schedule, `augment`, `block_size_mb`, and
        shape and classes of a synthetic data set
    6   `configuration` has limits of steps, seconds and accuracy, threads, device, cores, the page cache's state, and
        the sha256 of a model or data set from the user's own file; `resources`, `spark_metrics`,
        `throughput`, `epochs`, `first_touch`, `time_to_accuracy` and `page_cache`: null or empty in older records
    7   `configuration` has the channel's library and device (in `channel`), the size of a fusion buffer, how many
        parameter servers, and which planes the channel is asked of; `transport`: null in older records
    8   a layer has `measured_ns`, `between_marks_ns` and `named_wait_ns`, and each of its `causes` says whether its
        length was read from the run: null in older records
    9   `core_waits`, `environment_cache` and `imports`, and `earlier_walls_ns` of `noise`: null in older records
    10  `findings`: null in older records
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dlobd.spans import Cause, SpanKind

SCHEMA_VERSION = 10

Status = Literal["ok", "failed", "invalid", "interrupted"]

MAIN_LANE = "client"
"""The lane whose wall time is attributed; every other lane is reached through a wait."""


@dataclass(frozen=True, slots=True)
class Process:
    """One operating-system process of a run. `role` is client, driver, application-master, executor,
    python-worker, chief, worker, ps or evaluator; `start_ns` is None where it is not known."""

    host: str
    role: str
    index: int
    pid: int
    start_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of one layer in one lane. Spans of one lane nest; a lane is one sequential timeline.

    A span that waits names what releases it:
        waits_for: lanes; the last of them to end releases it.
        released_ns: when the release happened, if known; after it only `cause` can explain time.
        rendezvous: a key; all spans that carry it form one collective, and the last to start releases the others.
        call: the number of the collective among those of its kind, or of the step that the span is.
        unknown: the evidence for the owner of this span's own time is missing; that time stays unattributed.
        cause, cause_kind, cause_period_ns: text, row and period of the heartbeat, poll or sleep that explains the time
            that the releasing lane does not cover, up to its period and no further.

    `detail` is the variable part of the name, such as the name of a Spark job.
    """

    id: str
    parent: str | None
    kind: SpanKind
    process: Process
    lane: str
    start_ns: int
    end_ns: int
    detail: str = ""
    waits_for: tuple[str, ...] = ()
    released_ns: int | None = None
    rendezvous: str = ""
    call: int | None = None
    cause: str = ""
    cause_kind: Cause | None = None
    cause_period_ns: int = 0
    source: str = ""
    resolution_ns: int = 1
    truncated: bool = False
    unknown: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layer(self) -> str:
        """Layer of its kind."""
        return self.kind.layer

    @property
    def name(self) -> str:
        """Name of its kind with the variable part."""
        return self.kind.text(self.detail)


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """One reading of the monotonic and the wall clock together; the pair was read within `error_ns`."""

    domain: str
    monotonic_ns: int
    wall_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Time of `layer` that hides inside spans of layer `inside` of a lane, known only as lo <= time <= hi."""

    layer: str
    inside: str
    lane: str
    start_ns: int
    end_ns: int
    lo_ns: int
    hi_ns: int
    lo_source: str
    hi_source: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A point of the start-up or teardown anatomy."""

    event: str
    at_ns: int
    source: str
    clock: str = "monotonic"
    resolution_ns: int = 1
    lane: str = ""


NOT_PART = "not part of this way"
"""How the reason of a layer that took no part begins."""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A layer without a number: the layer that contains its time, or nothing where it took no part, and why.

    Of a layer inside `unattributed` a source is missing: besides its number, any of that time may be its own.

    Inside `user` it is what the user's own code did of it, which may come on top of what was measured elsewhere."""

    layer: str
    inside: str
    why: str

    @property
    def took_no_part(self) -> bool:
        """Whether there was no such layer, so that it took no time."""
        return self.why.startswith(NOT_PART)


@dataclass(frozen=True, slots=True)
class Clip:
    """A correction that had to be made to the evidence: shown, never silent."""

    kind: str  # 'outside window' | 'crossing' | 'inconsistent' | 'cycle' | 'truncated'
    span: str  # or the message that was received before it was sent
    ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """All spans of a run on one time axis. The wall is [start_ns, end_ns) of the main lane."""

    start_ns: int
    end_ns: int
    spans: tuple[Span, ...]
    anchors: tuple[ClockAnchor, ...] = ()
    intervals: tuple[Interval, ...] = ()
    not_measured: tuple[NotMeasured, ...] = ()
    startup: tuple[Event, ...] = ()
    teardown: tuple[Event, ...] = ()
    clips: tuple[Clip, ...] = ()  # what importers found that contradicts itself

    @property
    def wall_ns(self) -> int:
        """Length of the window, in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes in the order of their first span."""
        first: dict[str, int] = {}
        for span in self.spans:
            first[span.lane] = min(span.start_ns, first.get(span.lane, span.start_ns))
        return tuple(sorted(first, key=lambda lane: (lane != MAIN_LANE, first[lane], lane)))


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A layer's part of the wall; lo <= ns <= hi. Its degrees of evidence, `measured_ns`, `between_marks_ns`,
    `named_wait_ns` and `unexplained_ns`, sum to `ns`; the first three are None where an older record has them not.

    `causes` are the named heartbeats, polls and sleeps inside `ns`: name, ns, and whether the length of the period was
    read from the run or is a default, if known. `names` are the spans that make it up."""

    layer: str
    group: str
    ns: int
    unexplained_ns: int
    lo_ns: int
    hi_ns: int
    causes: tuple[tuple[str, int, str | None], ...] = ()
    names: tuple[tuple[str, int], ...] = ()
    measured_ns: int | None = None
    between_marks_ns: int | None = None
    named_wait_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the attributed wall: which span of which lane had it. `span` is None where nothing was open."""

    start_ns: int
    end_ns: int
    layer: str
    span: Span | None
    kind: Literal["span", "cause", "unexplained", "unattributed"]
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribution:
    """The wall split by layer: sum(layer.ns) + unattributed_ns == wall_ns, always."""

    wall_ns: int
    layers: tuple[LayerTime, ...]
    unattributed_ns: int
    not_measured: tuple[NotMeasured, ...]
    intervals: tuple[Interval, ...]
    clips: tuple[Clip, ...]
    segments: tuple[Segment, ...]

    @property
    def unexplained_ns(self) -> int:
        """Time inside layers that no evidence explains."""
        return sum(layer.unexplained_ns for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One point of the space that dlobd measures. Equal fields, equal key."""

    name: str
    scheduler: str
    launcher: str
    input: str
    deploy_mode: str
    channel: str  # TRANSPORT[@DEVICE]
    exchange: str
    model: str
    dataset: str
    optimiser: str
    loss: str
    workers: int
    epochs: int
    batch_size: int  # samples per worker and step
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    num_epochs_per_decay: float  # of schedule step, as the next one; 0 in others
    learning_rate_decay_factor: float
    warmup_epochs: float
    train_samples: int
    test_samples: int
    checkpoint_every_steps: int
    min_accuracy: float
    seed: int
    replication: int
    executor_memory_mb: int
    executor_overhead_mb: int
    timeout_s: int
    accept_timeout_s: int
    synthetic_shape: str  # of an image of data set synthetic: 32x32x3
    synthetic_classes: int
    block_size_mb: int  # of the training files in HDFS; 0: each file is one block
    augment: str
    max_steps: int  # training ends after so many, if its epochs have not ended before; 0: no limit
    max_seconds: int  # from the first batch; 0: no limit
    evaluate_every_epochs: int  # on the test set; 0: only at the end
    target_accuracy: float  # training ends with the epoch that reaches it; 0: no target
    device: str
    intra_op_threads: int  # of each rank's TensorFlow; 0: its own choice
    inter_op_threads: int
    executor_cores: int
    page_cache: str  # of the training files' blocks, before the window
    model_sha256: str  # of the file of a model of the user's own; else empty
    dataset_sha256: str
    channel_library: str  # whose code carries the channel; auto: what the exchange and the channel need
    exchange_fusion_mb: int  # of one message of an exchange of dlobd's own
    exchange_servers: int  # parameter servers; only of exchanges ps, ps-async and tf-ps
    planes: str  # of which the channel is asked: exchange, or all


ADDED: Mapping[str, str | int | float] = {
    "optimiser": "sgd",
    "loss": "softmax-cross-entropy",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "schedule": "constant",
    "num_epochs_per_decay": 0.0,
    "learning_rate_decay_factor": 0.0,
    "warmup_epochs": 0.0,
    "synthetic_shape": "32x32x3",
    "synthetic_classes": 10,
    "block_size_mb": 0,
    "augment": "none",
    "max_steps": 0,
    "max_seconds": 0,
    "evaluate_every_epochs": 0,
    "target_accuracy": 0.0,
    "device": "cpu",
    "intra_op_threads": 0,
    "inter_op_threads": 0,
    "executor_cores": 1,
    "page_cache": "as-is",
    "model_sha256": "",
    "dataset_sha256": "",
    "channel_library": "auto",
    "exchange_fusion_mb": 64,
    "exchange_servers": 1,
    "planes": "exchange",
}
"""Fields of an experiment that came after experiments had been written and stored, with the value that all of those
had: an experiment's file, a stored configuration or a stored job without such a field has it."""


@dataclass(frozen=True, slots=True)
class OwnJob:
    """The user's own script, run unchanged. Equal fields, equal key."""

    name: str
    scheduler: str
    deploy_mode: str
    launcher: str  # whose hooks: tfos or tfos-stock
    workers: int
    replication: int
    executor_memory_mb: int
    executor_overhead_mb: int
    timeout_s: int
    accept_timeout_s: int
    script: str  # as it was given
    script_sha256: str
    arguments: tuple[str, ...]
    options: tuple[str, ...]  # what the user's spark-submit line said, word for word


Runnable = Experiment | OwnJob
"""What a run runs."""
