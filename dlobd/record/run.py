"""Members of run.json: the declaration of each, with its meaning, unit, formula and source.

`Computed` has the members that follow from a bundle's evidence; `Run` adds those that only the client knew. Layers,
clips, events and experiments are declared in `dlobd.schema`. The JSON Schema and docs/metrics.md are derived from these
classes by `dlobd.fields`. None stands for unknown: not measured, or the run ended before that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from dlobd.fields import decoded, described, member, plain
from dlobd.record.resources import CoreWaits, EnvironmentCache, Import, PageCache, ResourceUse, SparkMetrics
from dlobd.schema import Clip, Event, Interval, LayerTime, NotMeasured, OwnJob, Runnable, Status

QUANTILE = "element floor({} n) of the n sorted times, counted from 0; null if n < {}"
COST_LINES = "sum over the processes' last `cost` lines"


@described()
class Window:
    """The interval [start_ns, end_ns) that the wall time covers."""

    name: str = member("Display name, such as 'spark-submit exec -> exit'.")
    start_ns: int = member("Start of the window.", "read just before `exec` of spark-submit, own clock", minimum=None)
    end_ns: int = member(
        "End of the window.", "read when the kernel reports the exit of spark-submit (pidfd), own clock", minimum=None
    )
    clock: str = member("Clock domain of all times in this record.")


@described(kw_only=True)
class Metrics:
    """Results of the training, and sizes that only the running cluster knew."""

    staged_bytes: int | None = member(
        "Bytes that were copied into HDFS before the run; 0 if they were there.", "own count", default=None
    )
    daemons_bytes: int | None = member(
        "Resident memory of the cluster's daemons after the run.", "sum of their resident sets; /proc", default=None
    )
    executor_peak_bytes: int | None = member(
        "Peak of the largest executor container, with its trainer.",
        "largest sample, one per second, of its process tree, in MiB; NodeManager's metrics over JMX",
        default=None,
    )
    test_accuracy: float | None = member(
        "Share of the test samples classified correctly.",
        "correct / all, with the model read back from HDFS; rank 0's done-marker",
        unit="share",
        maximum=1,
        default=None,
    )
    test_samples: int | None = member("Test samples.", "rank 0's done-marker", default=None)
    train_samples: int | None = member(
        "Samples trained on, all epochs and ranks.", "sum over the ranks' done-markers", default=None
    )
    steps: int | None = member("Steps of each rank.", "minimum over the ranks' done-markers", default=None)
    samples_per_second: float | None = member(
        "Training throughput from the first batch to the last step.",
        "`train_samples / training_ns * 1e9`",
        unit="samples/s",
        default=None,
    )
    first_loss: float | None = member(
        "Mean loss of the first step, over all ranks.", "rank 0's done-marker", unit="nats", default=None, minimum=None
    )
    last_loss: float | None = member(
        "Mean loss of the last step, over all ranks.", "rank 0's done-marker", unit="nats", default=None, minimum=None
    )
    training_ns: int | None = member(
        "Time from the first batch to the last step.",
        "latest `last step done` - earliest `first batch` of all ranks; own marks",
        default=None,
    )
    loop_ns: int | None = member(
        "Training loop of the slowest rank; also known without recording.",
        "maximum over the ranks' done-markers",
        default=None,
    )
    driver_gc_ns: int | None = member(
        "Garbage collection of the driver's JVM.", "sum of its pauses; the JVM's own log", default=None
    )
    spans: int | None = member("Spans that dlobd's recorder wrote, in all processes.", "files in spans/", default=None)


@described()
class HdfsUse:
    """HDFS work for one purpose. Times are sums over all lanes, which overlap: they are not wall time."""

    purpose: str = member("staging, reading, checkpoint, model, event log ...")
    operations: int | None = member(
        "Number of operations.",
        "files written or read for the purpose; for an interval, tasks or containers",
        unit="calls",
    )
    bytes: int | None = member(
        "Amount.",
        "own mark, else size of split or file, else DataNode client trace; its reads include checksums (0.8 %)",
    )
    ns: int | None = member("Time, if it is a single number.", "sum of the spans of all lanes")
    lo_ns: int | None = member("Otherwise its lower bound.", "`ns`, or the sum of the intervals' `lo_ns`")
    hi_ns: int | None = member("Otherwise its upper bound.", "`ns`, or the sum of the intervals' `hi_ns`")
    source_begin: str = member("Source of the start, or of lo_ns.")
    source_end: str = member("Source of the end, or of hi_ns.")


@described()
class RankSteps:
    """A rank's steps. Of the user's own script only `main_ns` and `feed_wait_ns` are known."""

    role: str = member("chief or worker.")
    index: int = member("Index within its role.", "own mark")
    steps: int | None = member("Steps.", "number of the rank's spans `step` and `first step`")
    step_p50_ns: int | None = member(
        "Median step.", "element floor(0.5 n) of its n sorted steps without the first one, counted from 0"
    )
    step_p99_ns: int | None = member(
        "99th percentile.", "element floor(0.99 n); null if n < 299, where it equals the maximum"
    )
    step_max_ns: int | None = member("Slowest step.", "the last element")
    first_step_ns: int | None = member("First step, which traces and compiles.", "span `first step`", default=None)
    feed_wait_ns: int | None = member(
        "Time for which the trainer waited for blocks.", "sum of the spans `get` and `await block`", default=None
    )
    main_ns: int | None = member(
        "Time of your own main function; only for your own script.",
        "its span `user code`; null if it was truncated",
        default=None,
    )
    device: Literal["cpu", "gpu"] | None = member("Device on which TensorFlow computed.", default=None)
    cores: int | None = member(
        "Cores that the rank's process may use.", "done-marker: sched_getaffinity", default=None, minimum=1
    )
    intra_op_threads: int | None = member(
        "TensorFlow's threads within an operation; 0: TensorFlow's choice, which is `cores`.",
        "done-marker: tf.config.threading",
        default=None,
    )
    inter_op_threads: int | None = member(
        "TensorFlow's threads for operations; 0: TensorFlow's choice, which is `cores`.",
        "done-marker: tf.config.threading",
        default=None,
    )

    @property
    def name(self) -> str:
        """Role and index: chief 0."""
        return f"{self.role} {self.index}"


# ---- training


@described()
class Quantiles:
    """Quantiles of step times; None where the number of steps is too small for the quantile."""

    p50_ns: int | None = member("Median.", QUANTILE.format("0.5", 5))
    p90_ns: int | None = member("90th percentile.", QUANTILE.format("0.9", 29))
    p95_ns: int | None = member("95th percentile.", QUANTILE.format("0.95", 59))
    p99_ns: int | None = member("99th percentile.", QUANTILE.format("0.99", 299))
    max_ns: int = member("Maximum.", "the longest of the times")


@described()
class Throughput:
    """Samples per second of the whole job. See `dlobd.measures.throughput`."""

    warmup_steps: int = member("First steps, which are left out.", "constant, tf_cnn_benchmarks' default")
    steps: int = member("Steps that count.", "the chief's spans `step`, without those", minimum=2)
    samples_per_step: int = member(
        "Samples of one step, all ranks together.", "`batch_size * workers` of the job", unit="samples", minimum=1
    )
    mean: float = member(
        "Mean throughput.",
        "`samples_per_step` / mean time of the chief's steps with input, without checkpoints and evaluations",
        unit="samples/s",
    )
    uncertainty: float = member(
        "Standard error of the mean over the steps of this run, as if they were independent; not between runs.",
        "standard deviation of the n steps' speeds / sqrt(n); a speed is `samples_per_step` / a step's time with input",
        unit="samples/s",
    )
    jitter: float = member(
        "Spread of single steps, robust against outliers.",
        "1.4826 * median absolute deviation of these speeds from their median",
        unit="samples/s",
    )
    step: Quantiles = member("A step itself: forward and backward pass, exchange, update.")
    step_with_input: Quantiles = member("A step with the wait for its input.")


@described()
class Epoch:
    """A completed pass over the training samples."""

    epoch: int = member("Number of the epoch, from 1.", "own mark `epoch done` of the chief", minimum=1)
    end_ns: int = member(
        "End of its last step.",
        "after its checkpoint, if one was due; own mark `epoch done` of the chief",
        minimum=None,
    )
    ns: int = member(
        "Duration, without evaluations.",
        "`end_ns` - `first batch` of the chief, or the end of the previous epoch and of its evaluation",
    )
    loss: float = member("Mean loss of its steps.", "own mark `epoch done` of the chief", unit="nats", minimum=None)
    test_samples: int | None = member(
        "Samples evaluated after it.",
        "own mark `epoch evaluated` of the chief; for the last epoch, if it has none, the stored model",
    )
    test_accuracy: float | None = member(
        "Share of them classified correctly.", "correct / all; as `test_samples`", unit="share", maximum=1
    )
    evaluation_ns: int | None = member(
        "Time from its end until its accuracy was known.",
        "own mark `epoch evaluated` - `end_ns`; of the stored model: `evaluated` - `end_ns`, including storing it",
    )

    @property
    def known_ns(self) -> int | None:
        """Time at which its accuracy was known, if ever."""
        return self.end_ns + self.evaluation_ns if self.evaluation_ns is not None else None


@described()
class TimeToAccuracy:
    """Time until a test accuracy of `target` was known, on two clocks."""

    target: float = member("Target.", "`configuration.target_accuracy`", unit="share", maximum=1)
    epoch: int | None = member(
        "First epoch that reached it; null if none did.",
        "first of `epochs` with at least that `test_accuracy`",
        minimum=1,
    )
    from_submit_ns: int | None = member(
        "Time since the start of the window.", "its `end_ns + evaluation_ns` - `window.start_ns`"
    )
    from_first_touch_ns: int | None = member(
        "Time since the first touch of the training data.", "its `end_ns + evaluation_ns` - `first_touch.at_ns`"
    )
    reason: str | None = member("The accuracy that was reached instead.")


@described()
class ExchangeUse:
    """A rank's exchanges of all its steps, by their parts; None where the exchange does not separate them."""

    role: str = member("chief or worker.")
    index: int = member("Index within its role.", "own mark")
    calls: int = member("Number of exchanges.", "spans `exchange` of whole steps")
    bytes: int | None = member("Packed bytes of all exchanges.", "sum over its spans `pack` of their `bytes`")
    compute_ns: int = member("Forward and backward, and apply.", "sum of its spans `forward and backward` and `apply`")
    exchange_ns: int = member("Exchange, with its parts.", "sum of its spans `exchange`")
    pack_ns: int | None = member("Copying tensors into send buffers.", "sum of its spans `pack`")
    wait_for_peers_ns: int | None = member("Wait until all ranks had packed.", "sum of its spans `wait for peers`")
    wire_ns: int | None = member(
        "The collective, or push to and pull from parameter servers.", "sum of its spans `wire`"
    )
    unpack_ns: int | None = member("Making tensors of the received bytes.", "sum of its spans `unpack`")
    overlap: float | None = member(
        "Share of the shorter of compute and exchange that was hidden behind the other (Hashemi et al. 2019).",
        "(M + P - U) / min(M, P) of M = `compute_ns`, P = `exchange_ns` and U, the sum of the steps; at least 0",
        unit="share",
    )


@described()
class Plane:
    """A kind of traffic between a job's processes, and the transport that carried its bytes."""

    plane: str = member(
        "exchange: the gradients; tensorflow-grpc: TensorFlow's own; spark: RPC and shuffle; hdfs: data."
    )
    kind: Literal["verbs", "ipoib", "tcp", "shm", "local", "mixed", "unknown"] = member("Transport that was used.")
    device: str = member("RDMA devices and ports, separated by commas; empty without RDMA.")
    interface: str = member("Interface that counted the bytes of IP, or carries RoCE; lo between ranks of one host.")
    addresses: tuple[str, ...] = member("Addresses of the ends.")
    soft: bool = member("True if a device is in software, such as Soft-RoCE: it shows function, never performance.")
    evidence: tuple[str, ...] = member(
        "Sentences with figures: messages of the library, counters of kernel and devices."
    )
    asked: str = member("The requested channel; empty without a request.")
    agrees: bool | None = member(
        "True if the requested channel was used; null without a request, or if unknown. False makes the run invalid."
    )

    def disagreement(self) -> str:
        """Return one line if another channel was used than was requested; empty otherwise."""
        if self.agrees is not False:
            return ""
        if self.kind == "unknown":
            return f"{self.plane}: {self.asked} was requested and not used: {self.evidence[-1]}"
        where = self.device or self.interface
        line = f"{self.plane}: {self.asked} was requested, and {self.kind}{f' ({where})' if where else ''} was used"
        # the name of an interface does not identify its network
        return f"{line}: {self.evidence[-1]}" if "/" in self.asked else line


# ---- recording, checks


@described()
class LoopCost:
    """Cost of recording in the training loop of the slowest rank."""

    rank: str = member("Role and index.")
    length_ns: int = member(
        "Time from its first batch to its last step.", "`last step done` - `first batch`; own marks"
    )
    spans: int = member("Spans that began in that time, in all threads of the rank.", "own marks")
    ns: int | None = member(
        "Estimated cost of recording them.",
        "`spans * span_cost_ns`; much of it is writing, which may run in parallel to the loop",
    )
    share: float | None = member("Share of the loop.", "`ns / length_ns`")


@described()
class RecordingCost:
    """Cost of recording a run. See `dlobd.measures.recording_cost`."""

    recording: Literal["on", "off"] = member("off: DLOBD_TRACE was off, so there is no breakdown by layer.")
    span_cost_ns: int | None = member(
        "CPU time per span on the client's machine, just before the window.",
        "median of 7 times 100 spans with cold caches; evidence/span_cost.json",
    )
    spans: int = member("Spans in the span files of all processes.", "lines of spans/ that begin a span")
    lines: int = member("Complete lines in the span files.", "readable lines of spans/")
    lost_lines: int = member(
        "Lines that could not be written to disk.",
        "sum over the processes of the last `cost` line or the message on stderr, whichever is more",
    )
    left_out: int | None = member(
        "Calls into the JVM that were too short to record as a span; only of your own scripts.",
        COST_LINES,
        unit="calls",
    )
    flush_ns: int | None = member(
        "Time of formatting and writing, in all processes and threads; it overlaps the job.",
        f"{COST_LINES}, without up to one second at the end",
    )
    flush_cpu_ns: int | None = member("CPU time of the writing threads in that time.", "as `flush_ns`")
    span_bytes: int = member("Size of the span files.", "sizes of the files in spans/")
    log_bytes: int = member(
        "Size of the logs that exist only because of dlobd's settings.",
        "sizes of Spark's event log, the JVMs' own logs, the NameNode's audit log and the DataNodes' client traces",
    )
    chain_spans: int = member(
        "Spans along the attributed chain.",
        "own marks that begin in wall time of their lane, without those of other threads",
    )
    chain_ns: int | None = member(
        "Estimated cost of recording them; included in the layers' numbers.", "`chain_spans * span_cost_ns`"
    )
    chain_share: float | None = member("Share of the wall time.", "`chain_ns / wall_ns`")
    loop: LoopCost | None = member("Training loop of the slowest rank; null if no rank recorded its training.")


Number = int | float
Verdict = Literal["pass", "fail", "unknown"]


@described()
class Check:
    """One quantity from two sources, and whether they agree."""

    code: str = member("Stable name of the check; other programs may depend on it.")
    verdict: Verdict = member(
        "unknown: a source is incomplete, or a difference may be harmless. fail: the run is invalid."
    )
    message: str = member("Both figures in plain words, or the reason why the verdict is unknown.")
    left: Number | None = member(
        "Figure of the first source.", "`left_source`", unit="as in `left_source`", minimum=None
    )
    left_source: str = member("The first source, and its unit.")
    right: Number | None = member(
        "Figure of the second source.", "`right_source`", unit="as in `right_source`", minimum=None
    )
    right_source: str = member("The second source, and its unit.")


@described()
class Finding:
    """A cause of overhead, its evidence, and the setting that saves time."""

    finding: str = member("Code of the finding, and section in docs/findings.md.")
    layer: str = member("Layer of the time.")
    says: str = member("A sentence with the time and its share of the wall time.")
    ns: int = member("Wall time of the cause.", "sum of its segments of the attribution")
    saves_ns: int = member(
        "Upper bound of the saving.", "wall time - wall time of the trace replayed without the cause; see findings.md"
    )
    lo_ns: int = member(
        "Lower bound of the saving.", "`saves_ns` - the uncertainty of the boundaries of the removed spans; above 0"
    )
    above_noise: bool = member("True if lo_ns exceeds the difference of equal runs. Such findings come first.")
    evidence: tuple[str, ...] = member("Spans with their durations, figures of other sources; one line each.")
    remedy: str = member("The change to make, as an imperative, with the setting.")
    unless: str = member('Condition under which the remedy does not help; it continues "unless".')


@described()
class Noise:
    """The noise of a machine. Times are in nanoseconds; None where the kernel does not report a figure."""

    timer_ns: int = member("Interval between two consecutive clock readings.", "median of 2,000; CLOCK_MONOTONIC")
    sleep_over_p50_ns: int = member("Median overshoot of a 1 ms sleep.", "median of 300 sleeps, minus 1 ms")
    sleep_over_p99_ns: int = member("99th percentile of the same.", "99th percentile of 300 sleeps, minus 1 ms")
    loop_variation: float = member(
        "Variation of a fixed piece of work.",
        "standard deviation / mean of 8 equal pieces of work of about 25 ms",
        unit="share",
    )
    loop_slowest: float = member("Slowest of these pieces.", "the slowest of them / their median", unit="share")
    steal_share: float | None = member(
        "CPU time that the hypervisor gave to other guests in that time.",
        "steal / all CPU time during the measurement; null if the kernel does not report it; /proc/stat",
        maximum=1,
    )
    loopback_p50_ns: int = member("Median round trip of 64 bytes over loopback.", "median of 400 TCP round trips")
    loopback_p99_ns: int = member("99th percentile of the same.", "99th percentile of 400 TCP round trips")
    load_1m: float = member("Load average over the last minute.", "/proc/loadavg", unit="processes")
    machine: str = member("The measured machine: all of the cluster, or only the client.", default="")
    earlier_walls_ns: tuple[int, ...] | None = member(
        "Wall times of earlier runs of the same experiment on this machine, oldest first. null: not read.",
        "`wall_ns` of the `ok` runs among the latest 50 in its folder with its `experiment_key` and machine",
        default=None,
    )


@described()
class Checkout:
    """The state of dlobd's own checkout."""

    commit: str | None = member("Commit of HEAD.")
    dirty: bool | None = member("True if tracked files differ from it.")


# ---- the record


@described(kw_only=True)
class Computed:
    """The members of run.json that follow from a bundle's evidence."""

    status: Status = member(
        "failed: the job did not finish. invalid: it finished, but the result cannot be trusted. "
        "interrupted: the user or the system ended it."
    )
    reason: str | None = member("Reason for a status other than ok, in one line.", pattern="^[^\n]*$")
    window: Window | None = member("The interval that the wall time covers.", default=None)
    wall_ns: int | None = member("Duration of the window.", "`window.end_ns - window.start_ns`", default=None)
    layers: tuple[LayerTime, ...] = member(
        "The wall time by layer: `ns` of all layers and `unattributed_ns` sum to `wall_ns` exactly.", default=()
    )
    unattributed_ns: int | None = member(
        "Wall time without an open span, or whose layer is only in a missing source.",
        "sum of the segments of the main lane without an open span",
        default=None,
    )
    not_measured: tuple[NotMeasured, ...] = member("Layers without a number.", default=())
    intervals: tuple[Interval, ...] = member(
        "Time hidden inside another layer, known only between two bounds.", default=()
    )
    clips: tuple[Clip, ...] = member("Corrections that had to be made to the evidence.", default=())
    startup: tuple[Event, ...] = member(
        "Events from exec of spark-submit to the first step, in chronological order.", default=()
    )
    teardown: tuple[Event, ...] = member("Events from the last step to the exit of spark-submit.", default=())
    hdfs: tuple[HdfsUse, ...] = member("HDFS work by purpose.", default=())
    ranks: tuple[RankSteps, ...] = member("Spread across the ranks.", default=())
    metrics: Metrics = member("Results of the training.")
    throughput: Throughput | None = member(
        "Samples per second of the whole job, as in tf_cnn_benchmarks, and step times. null: too few recorded steps.",
        default=None,
    )
    epochs: tuple[Epoch, ...] = member("Completed epochs, with test accuracy where it was evaluated.", default=())
    first_touch: Event | None = member(
        "First touch of the training data: the first `open` of a training file in the NameNode's audit log. Without "
        "it: the executor's input-split line (possibly seconds earlier) or a reading rank's own mark, whichever is "
        "earlier. The second clock of `time_to_accuracy` starts there. null: no source shows it.",
        default=None,
    )
    time_to_accuracy: TimeToAccuracy | None = member(
        "Time to the target accuracy, on two clocks. null: there was no target.", default=None
    )
    overhead: RecordingCost | None = member("Cost of dlobd's own recording. null: not measured.", default=None)
    resources: ResourceUse | None = member(
        "Sampled use of dlobd's machine and of the run's processes, not of external nodes. null: no samples.",
        default=None,
    )
    core_waits: CoreWaits | None = member(
        "The wall time by the state of its threads: on a core, waiting, or blocked. null: no readings.", default=None
    )
    imports: tuple[Import, ...] = member("Imports of Python packages, by process and importer.", default=())
    findings: tuple[Finding, ...] = member("Causes of overhead with a setting that saves time, by saving.", default=())
    spark_metrics: SparkMetrics | None = member(
        "Spark's own metrics of its tasks, in sparkMeasure's names and units. null: no task ended.", default=None
    )
    transport: tuple[Plane, ...] | None = member(
        "Transport of each plane, with evidence. null: not examined, as for your own script.", default=None
    )
    exchange: tuple[ExchangeUse, ...] = member(
        "Each rank's exchanges, all steps together; empty if the exchange lies inside of the step.", default=()
    )
    checks: tuple[Check, ...] = member(
        "Comparisons of one quantity from two sources, as far as they apply to the run.", default=()
    )
    noise: Noise | None = member("Noise of the machine just before the window. null: not measured.", default=None)
    page_cache: PageCache | None = member(
        "Training files, or their HDFS blocks, in the page cache before the window. null: unknown.", default=None
    )
    environment_cache: EnvironmentCache | None = member(
        "Files of the job's environment in the page cache at its start. null: not read.", default=None
    )
    warnings: tuple[str, ...] = member("Warnings for readers of the report, one line each.", default=())

    def to_json(self) -> dict[str, object]:
        """Return the members as JSON has them."""
        return dict(plain(self))


@described(kw_only=True)
class Run(Computed):
    """One execution, immutable: the content of run.json."""

    schema_version: int = member("Version of this format.", "constant of this dlobd version")
    run_id: str = member("UTC start time and four random digits.", pattern="^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}$")
    experiment: str = member("Name of the experiment.")
    experiment_key: str = member(
        "Hash of the configuration: equal configurations have equal keys.", pattern="^[0-9a-f]{16}$"
    )
    configuration: Runnable = member("The exact experiment, or your own job, which has a script.")
    started_at: str = member("UTC, ISO 8601.")
    command: tuple[str, ...] = member("Command line that submitted the job; empty if nothing was submitted.")
    setup: Mapping[str, int | None] = member(
        "Time outside the window, by activity: cluster_up_ns, staging_ns, collect_ns, cluster_down_ns ...",
        "own clock around the step; `cluster_up_ns` is null if a cluster was already up",
        unit="ns",
    )
    platform: Mapping[str, str | int | float | bool | None] = member(
        "The machine: system, kernel, architecture, processor, cores, memory_bytes ...; the user's hadoop_settings.",
        "operating system, at the start of the run",
        unit="cores, bytes, load",
        minimum=None,
    )
    versions: Mapping[str, str | None] = member("Versions of dlobd, Python, Java, Hadoop, Spark, TensorFlow ...")
    git: Checkout | None = member("State of dlobd's git checkout. null: no checkout.")
    seeds: Mapping[str, int] = member("Random seeds by use.", "experiment file", minimum=None)

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Run:
        """Build the run of a run.json; `dlobd.bundle.store` validates it.
        Raises KeyError or TypeError if it is not one."""
        return decoded(cls, record)

    def with_computed(self, computed: Computed) -> Run:
        """Return the run with these members computed from its evidence."""
        return dataclasses.replace(self, **{f.name: getattr(computed, f.name) for f in dataclasses.fields(Computed)})

    @property
    def own(self) -> bool:
        """True if the user's own script was run."""
        return isinstance(self.configuration, OwnJob)

    @property
    def busy(self) -> bool:
        """True if other processes of the machine delayed the run; False if that is unknown."""
        return bool(self.core_waits and self.core_waits.busy)

    @property
    def unexplained_ns(self) -> int:
        """Wall time that no evidence explains, inside and outside of layers."""
        return (self.unattributed_ns or 0) + sum(layer.unexplained_ns for layer in self.layers)

    def from_submit_ns(self, epoch: Epoch) -> int | None:
        """Return the time from the start of the window until an epoch's accuracy was known."""
        return epoch.known_ns - self.window.start_ns if self.window and epoch.known_ns is not None else None

    def from_first_touch_ns(self, epoch: Epoch) -> int | None:
        """Return the time from the first touch of the data until an epoch's accuracy was known."""
        touched = self.first_touch
        return epoch.known_ns - touched.at_ns if touched and epoch.known_ns is not None else None

    def event_ns(self, name: str) -> int | None:
        """Return the time of an event of start-up or teardown; the last one if every rank has it."""
        return max((event.at_ns for event in (*self.startup, *self.teardown) if event.event == name), default=None)
