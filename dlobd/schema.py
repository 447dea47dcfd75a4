"""The data model: frozen, stdlib only, the same on the driver, on executors and in analysis.

All times are integers of nanoseconds on CLOCK_MONOTONIC of one clock domain (host, boot, time namespace).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

SCHEMA_VERSION = 1
"""Format of run.json and of span files. No other format is read."""

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
        unknown: the evidence for this span's own time is missing; that time stays unattributed.
        cause, cause_period_ns: the heartbeat, poll or sleep that explains what the releasing lane does not cover,
            up to its period and no further.
    """

    id: str
    parent: str | None
    layer: str
    name: str
    process: Process
    lane: str
    start_ns: int
    end_ns: int
    waits_for: tuple[str, ...] = ()
    released_ns: int | None = None
    rendezvous: str = ""
    call: int | None = None
    cause: str = ""
    cause_period_ns: int = 0
    source: str = ""
    resolution_ns: int = 1
    truncated: bool = False
    unknown: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)


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
    """A layer's part of the wall; lo <= ns <= hi.

    `measured_ns`, `between_marks_ns`, `named_wait_ns` and `unexplained_ns` sum to `ns`. Each of `causes` is a named
    heartbeat, poll or sleep, its time, and the origin of its length: read from the run, or a default. `names` are the
    names of the spans, with their times."""

    layer: str
    group: str
    ns: int
    unexplained_ns: int
    lo_ns: int
    hi_ns: int
    measured_ns: int
    between_marks_ns: int
    named_wait_ns: int
    causes: tuple[tuple[str, int, str | None], ...] = ()
    names: tuple[tuple[str, int], ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    optimiser: str = "sgd"
    loss: str = "softmax-cross-entropy"
    workers: int
    epochs: int
    batch_size: int  # samples per worker and step
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    num_epochs_per_decay: float = 0.0  # of schedule step, as the next one; 0 in others
    learning_rate_decay_factor: float = 0.0
    warmup_epochs: float = 0.0
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
    synthetic_shape: str = "32x32x3"  # of an image of data set synthetic: 32x32x3
    synthetic_classes: int = 10
    block_size_mb: int = 0  # of the training files in HDFS; 0: each file is one block
    augment: str = "none"
    max_steps: int = 0  # training ends after so many, if its epochs have not ended before; 0: no limit
    max_seconds: int = 0  # from the first batch; 0: no limit
    evaluate_every_epochs: int = 0  # on the test set; 0: only at the end
    target_accuracy: float = 0.0  # training ends with the epoch that reaches it; 0: no target
    device: str = "cpu"
    intra_op_threads: int = 0  # of each rank's TensorFlow; 0: its own choice
    inter_op_threads: int = 0
    executor_cores: int = 1
    page_cache: str = "as-is"  # of the training files' blocks, before the window
    model_sha256: str = ""  # of the file of a model of the user's own; else empty
    dataset_sha256: str = ""
    channel_library: str = "auto"  # whose code carries the channel; auto: what the exchange and the channel need
    exchange_fusion_mb: int = 64  # of one message of an exchange of dlobd's own
    exchange_servers: int = 1  # parameter servers; only of exchanges ps, ps-async and tf-ps
    planes: str = "exchange"  # of which the channel is asked: exchange, or all


DEFAULTS: Mapping[str, str | int | float] = {
    field.name: field.default for field in fields(Experiment) if field.default is not MISSING
}
"""Fields that an experiment file may leave out, with their values."""


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
