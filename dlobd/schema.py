"""Data model that driver, executors and analysis share: frozen dataclasses, standard library only.

All times are integer nanoseconds on CLOCK_MONOTONIC of one clock domain (host, boot, time namespace).
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Literal

from dlobd.channel import Channel
from dlobd.fields import described, member, setting
from dlobd.user_file import MemberRef

SCHEMA_VERSION = 1
"""Format of run.json and of span files. No other format is read."""

Status = Literal["running", "ok", "failed", "invalid", "interrupted"]

SHA256_OR_EMPTY = "^([0-9a-f]{64})?$"

_WEEK_S = 7 * 24 * 3600

MAIN_LANE = "client"
"""Name of the lane whose wall time is attributed. Its waits lead to all other lanes."""


@dataclass(frozen=True, slots=True)
class Process:
    """An operating-system process of a run. `role` is client, driver, application-master, executor, python-worker,
    torchrun, chief, worker, ps, evaluator, or child: a process that user code forked. `start_ns` may be unknown."""

    host: str
    role: str
    index: int
    pid: int
    start_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """Simultaneous reading of the monotonic clock and the wall clock, accurate to `error_ns`."""

    domain: str
    monotonic_ns: int
    wall_ns: int
    error_ns: int


@described()
class Interval:
    """Time of a layer inside spans of another layer, known only as a range."""

    layer: str = member("Layer of the time.")
    inside: str = member("Layer of the spans that contain the time.")
    lane: str = member("Lane of the interval; empty for a sum.")
    start_ns: int = member("Start of the interval.", "start of the containing span", minimum=None)
    end_ns: int = member("End of the interval.", "end of the containing span", minimum=None)
    lo_ns: int = member(
        "Lower bound of the time.",
        "bytes / rate of the run's fastest DataNode transfer of at least 1 MiB, or 0 without one; at most `hi_ns`",
    )
    hi_ns: int = member(
        "Upper bound of the time.",
        "sum of the durations in the DataNodes' client traces, including back-pressure; at most `end_ns - start_ns`",
    )
    lo_source: str = member("Source of lo_ns.")
    hi_source: str = member("Source of hi_ns.")
    name: str = member("Name of the work in the interval.", default="")


@described()
class Event:
    """Point in time of start-up or teardown."""

    event: str = member("Name of the event.")
    at_ns: int = member("Time on the axis of window.start_ns.", "the record that `source` names", minimum=None)
    source: str = member("Source of the event.")
    clock: str = member("Clock of at_ns: monotonic, or a clock domain.", default="monotonic")
    resolution_ns: int = member(
        "The event lies in [at_ns, at_ns + resolution_ns).",
        "1 for dlobd's marks and JVM logs, 1,000 for log lines with `%nano`, one kernel tick for /proc",
        default=1,
        minimum=1,
    )
    lane: str = member("Lane of the event.", default="")


NOT_PART = "not used by this kind of run"
"""Prefix of the reason for a layer that the run did not use."""


@described()
class NotMeasured:
    """Layer without a measured time.

    `inside` is the layer that contains its time; empty if the run did not use the layer. If it is `unattributed`, a
    source is missing: any part of the unattributed time may belong to the layer. If it is `user`, the user's own code
    did work of the layer, in addition to any time that was measured."""

    layer: str = member("Name of the layer.")
    inside: str = member("Layer that contains its time.")
    why: str = member("Reason for the missing number.")


@described()
class Clip:
    """Correction of contradictory evidence; reports list it."""

    kind: str = member("Kind: outside window, crossing, inconsistent, cycle or truncated.")
    span: str = member("ID of the span, or of a message that was received before it was sent.")
    ns: int = member(
        "Duration of the correction.",
        "cut duration, or duration of the contradiction with other evidence; for a truncated span, its known duration",
    )
    count: int = member("Number of corrections.", "1, or more for the sum of small corrections of a kind", default=1)


@described()
class LayerTime:
    """A layer's part of the wall time; lo <= ns <= hi. `measured_ns`, `between_marks_ns`, `named_wait_ns` and
    `unexplained_ns` sum to `ns`."""

    layer: str = member("Name of the layer.")
    group: str = member("Group of the layer.")
    ns: int = member("Wall time of the layer.", "sum of the segments of the window that belong to the layer")
    unexplained_ns: int = member(
        "Part of ns that no evidence explains.",
        "sum of its segments of kind `unexplained`: waits without activity in the releasing lane and without a cause",
    )
    lo_ns: int = member(
        "Lower bound of ns.",
        "`ns` - resolution of each boundary with another layer - `hi_ns` of the intervals inside it; at least 0",
    )
    hi_ns: int = member(
        "Upper bound of ns.",
        "`ns` + resolution of each boundary with another layer + `hi_ns` of its own intervals; at most the wall time",
    )
    measured_ns: int = member("Part of ns with an observed start and end.", "sum of its `measured` segments")
    between_marks_ns: int = member(
        "Part of ns between two marks of different events, without evidence of the time in between.",
        "sum of its segments whose span is `between marks`, or of unknown kind, or without an observed end",
    )
    named_wait_ns: int = member("Part of ns in configured polls, heartbeats and sleeps.", "sum of its `causes`")
    causes: tuple[tuple[str, int, Literal["read", "default"] | None], ...] = member(
        "[heartbeat, poll or sleep; ns; origin of its period: read from the run, default, or null if unknown].",
        "wait time attributed to the named cause; at most the cause's period per wait",
        unit="ns",
        default=(),
    )
    names: tuple[tuple[str, int], ...] = member(
        "[span name, ns]: part of ns by span name.",
        "sum of the segments of spans with that name",
        unit="ns",
        default=(),
    )


@described(kw_only=True)
class Submission:
    """Settings of every job that dlobd submits."""

    name: str = setting("Name of the directory for its runs.", pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", axis=False)
    scheduler: str = setting("Scheduler of Spark.", "schedulers")
    launcher: str = setting("Launcher of the ranks; for your own script, tfos or tfos-stock.", "launchers")
    deploy_mode: str = setting("Spark's deploy mode.", "deploy-modes")
    workers: int = setting("Number of training ranks, with one executor per rank.", (1, 1000), unit="ranks")
    replication: int = setting("Replication of the job's files in HDFS: input, checkpoints, event log.", (1, 512))
    executor_memory_mb: int = setting("Heap of an executor's JVM; 0: derived.", (450, 10**6), zero=True, unit="MiB")
    executor_overhead_mb: int = setting("Memory for Python worker and trainer; 0: derived.", (0, 10**6), unit="MiB")
    timeout_s: int = setting("Time limit for the job, from spark-submit to its exit.", (10, _WEEK_S), unit="s")
    accept_timeout_s: int = setting("Time limit for YARN to start the ApplicationMaster.", (5, _WEEK_S), unit="s")
    record_every_steps: int = setting(
        "Interval of steps with all spans; in other steps, inner spans are summed.", (1, 10**9), unit="steps", default=1
    )


@described(kw_only=True)
class Experiment(Submission):
    """Settings of a training run. Experiments with equal fields have the same key. Files, `--set`, axes of sweeps,
    `dlobd list settings`, docs/settings.md and run.json are derived from these declarations."""

    input: str = setting("Method to bring the training data to the ranks.", "inputs")
    channel: Channel = setting("Channel of the exchange: TRANSPORT[@DEVICE].", "channels")
    exchange: str = setting("Algorithm of the gradient exchange.", "exchanges")
    model: MemberRef = setting("Model, or FILE.py:FUNCTION.", "models")
    dataset: MemberRef = setting("Data set, or FILE.py:CLASS.", "datasets")
    optimiser: str = setting("Optimiser.", "optimisers", default="sgd")
    loss: str = setting("Loss function.", "losses", default="softmax-cross-entropy")
    epochs: int = setting("Number of passes over the training samples.", (1, 10_000), unit="passes")
    batch_size: int = setting("Samples per rank and step.", (1, 1_000_000), unit="samples")
    learning_rate: float = setting("Learning rate, before its schedule.", (1e-12, 1e6))
    momentum: float = setting("Fraction of the last update to keep; 0 for optimiser `sgd`.", (0, 1), default=0.0)
    weight_decay: float = setting("L2 weight decay; biases are excluded.", (0, 1), default=0.0)
    schedule: str = setting("Schedule of the learning rate.", "schedules", default="constant")
    num_epochs_per_decay: float = setting("Decay interval; 0 without `step`.", (0, 10_000), unit="epochs", default=0.0)
    learning_rate_decay_factor: float = setting("Factor of a decay; 0 without schedule `step`.", (0, 1), default=0.0)
    warmup_epochs: float = setting("Linear rise of the learning rate.", (0, 10_000), unit="epochs", default=0.0)
    train_samples: int = setting("Samples per epoch, in total over all ranks.", (1, 10**9), unit="samples")
    test_samples: int = setting("Samples evaluated after training.", (1, 10**9), unit="samples")
    checkpoint_every_steps: int = setting("Number of steps between rank 0's checkpoints.", (1, 10**9), unit="steps")
    min_accuracy: float = setting("Lowest test accuracy of a valid run.", (0, 1), unit="share")
    seed: int = setting("Random seed for the data order and the initial weights.", (0, 2**31 - 1))
    synthetic_shape: str = setting("Shape of an image of data set synthetic: 1 to 4 sizes.", default="32x32x3")
    synthetic_classes: int = setting("Classes of data set synthetic.", (1, 1_000_000), unit="classes", default=10)
    block_size_mb: int = setting("HDFS block size of input; 0: a block per file.", (0, 1 << 20), unit="MiB", default=0)
    augment: str = setting("Augmentation of the training images.", "augmentations", default="none")
    max_steps: int = setting("Maximum number of steps; 0: no limit.", (0, 10**9), unit="steps", default=0)
    max_seconds: int = setting("Maximum training time; 0: no limit.", (0, _WEEK_S), unit="s", default=0)
    evaluate_every_epochs: int = setting(
        "Number of epochs between evaluations on the test set; 0: only at the end.",
        (0, 10_000),
        unit="epochs",
        default=0,
    )
    target_accuracy: float = setting("Test accuracy that ends training; 0: none.", (0, 1), unit="share", default=0.0)
    device: str = setting("Device for TensorFlow.", "devices", default="cpu")
    intra_op_threads: int = setting("Threads within an operation; 0: automatic.", (0, 1024), unit="threads", default=0)
    inter_op_threads: int = setting("Operations in parallel; 0: automatic.", (0, 1024), unit="threads", default=0)
    executor_cores: int = setting("Cores of an executor's container.", (1, 1024), unit="cores", default=1)
    page_cache: str = setting("Training files in the page cache before the window.", "page-caches", default="as-is")
    model_sha256: str = setting("Computed SHA-256 of its FILE.py.", default="", pattern=SHA256_OR_EMPTY, axis=False)
    dataset_sha256: str = setting("Computed SHA-256 of its FILE.py.", default="", pattern=SHA256_OR_EMPTY, axis=False)
    channel_library: str = setting("Library that implements the channel.", "libraries", default="auto")
    exchange_fusion_mb: int = setting("Largest message of dlobd's own exchanges.", (1, 1024), unit="MiB", default=64)
    exchange_servers: int = setting("Servers of exchanges ps, ps-async, tf-ps.", (1, 1000), unit="servers", default=1)
    planes: str = setting("Traffic that should use the channel.", "planes", default="exchange")
    queue: str = setting("Queue of YARN; empty: the cluster's default.", default="")
    spark_conf: str = setting("Settings of Spark: KEY=VALUE KEY=VALUE, quoted as in a shell.", default="")

    def __post_init__(self) -> None:
        for name, kind in (("channel", Channel), ("model", MemberRef), ("dataset", MemberRef)):
            object.__setattr__(self, name, kind(getattr(self, name)))

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a pass over the training samples; all workers take each step together."""
        return self.train_samples // (self.workers * self.batch_size)

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def most_steps(self) -> int:
        """Maximum number of steps; time or accuracy may end training earlier."""
        return min(self.steps, self.max_steps or self.steps)


DEFAULTS: Mapping[str, str | int | float] = {
    field.name: field.default for field in fields(Experiment) if field.default is not MISSING
}
"""Default values of the fields that an experiment file may omit."""


@described(kw_only=True)
class OwnJob(Submission):
    """The user's own script, run unchanged. Jobs with equal fields have the same key."""

    script: str = member("Path of the script, as given.")
    script_sha256: str = member("SHA-256 of the script.", pattern="^[0-9a-f]{64}$")
    arguments: tuple[str, ...] = member("Arguments of the script.")
    options: tuple[str, ...] = member("Options of the user's spark-submit line, after those of its shell.")
    python: str = member("Interpreter of --python; empty: that of dlobd.", default="")
    packages: tuple[str, ...] = member("Packages of --with.", default=())
    requirements: str = member("File of --requirements; empty without one.", default="")
    requirements_sha256: str = member("SHA-256 of this file and of the files that it includes.", default="")


Runnable = Experiment | OwnJob
"""The configuration of a run."""
