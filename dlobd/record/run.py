"""Declaration of the members of run.json, with meaning, unit, formula and source.

`Computed` has the members that are computed from a bundle's evidence; `Run` adds the members that only the client
records. Layers, clips, events and experiments are declared in `dlobd.schema`. `dlobd.fields` derives the JSON Schema
and docs/metrics.md from these classes. None stands for unknown: not measured, or the run ended first.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal, Self

from dlobd.fields import decoded, described, member, plain
from dlobd.record.resources import CoreWaits, EnvironmentCache, Import, PageCache, ResourceUse, SparkMetrics
from dlobd.schema import Clip, Event, Interval, LayerTime, NotMeasured, OwnJob, Runnable, Status

QUANTILE = "element floor({} n) of the n sorted step times, with index from 0; null if n < {}"
COST_LINES = "sum over the last `cost` line of each process"


@described()
class Window:
    """Interval [start_ns, end_ns) of the wall time."""

    name: str = member("Display name, such as 'spark-submit exec -> exit'.")
    start_ns: int = member("Start of the window.", "dlobd's clock just before `exec` of spark-submit", minimum=None)
    end_ns: int = member("End of the window.", "dlobd's clock at the exit of spark-submit (pidfd)", minimum=None)
    clock: str = member("Clock domain of all times in this record.")


@described(kw_only=True)
class Metrics:
    """Results of the training, and sizes read from the running cluster."""

    staged_bytes: int | None = member("Bytes staged in HDFS; 0 if it had the files.", "dlobd's own count", default=None)
    daemons_bytes: int | None = member("Memory of the daemons after the run.", "resident sets; /proc", default=None)
    executor_peak_bytes: int | None = member(
        "Peak memory of the largest executor container, including its trainer.",
        "maximum of one sample per second of its process tree, rounded to MiB; NodeManager's metrics over JMX",
        default=None,
    )
    test_accuracy: float | None = member(
        "Fraction of the test samples classified correctly.",
        "correct / all, with the model read from HDFS after training; rank 0's done-marker",
        unit="share",
        maximum=1,
        default=None,
    )
    test_samples: int | None = member("Number of test samples.", "rank 0's done-marker", default=None)
    train_samples: int | None = member(
        "Number of processed training samples, over all epochs and ranks.",
        "sum over the ranks' done-markers",
        default=None,
    )
    steps: int | None = member("Training steps per rank.", "minimum over the ranks' done-markers", default=None)
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
        "Duration of the slowest rank's training loop; also known without recording.",
        "maximum over the ranks' done-markers",
        default=None,
    )
    driver_gc_ns: int | None = member("GC pauses of the driver's JVM.", "sum of pauses in its log", default=None)
    spans: int | None = member("Number of recorded spans of all processes.", "files in spans/", default=None)


@described()
class HdfsUse:
    """HDFS work for one purpose. Times are sums over all lanes, which overlap: they are not wall time."""

    purpose: str = member("Purpose: staging, reading, checkpoint, model, event log ...")
    operations: int | None = member(
        "Number of operations.",
        "files written or read for the purpose; for an interval, tasks or containers",
        unit="calls",
    )
    bytes: int | None = member(
        "Number of bytes.",
        "own mark, else size of split or file, else DataNode client trace, whose reads include checksums (0.8 %)",
    )
    ns: int | None = member("Duration, if it is measured exactly.", "sum of the spans of all lanes")
    lo_ns: int | None = member("Lower bound of the duration.", "`ns`, or the sum of the intervals' `lo_ns`")
    hi_ns: int | None = member("Upper bound of the duration.", "`ns`, or the sum of the intervals' `hi_ns`")
    source_begin: str = member("Source of the start time, or of lo_ns.")
    source_end: str = member("Source of the end time, or of hi_ns.")


@described()
class RankSteps:
    """Training steps of one rank. For the user's own script, steps are null if they could not be counted."""

    role: str = member("Role: chief or worker.")
    index: int = member("Index within its role.", "own mark")
    steps: int | None = member("Number of steps.", "number of the rank's spans `step` and `first step`")
    step_p50_ns: int | None = member(
        "Median step time.", "element floor(0.5 n) of its n sorted step times without the first step, with index from 0"
    )
    step_p99_ns: int | None = member("99th percentile of the step times.", "element floor(0.99 n); null if n < 299")
    step_max_ns: int | None = member("Time of the slowest step.", "the last element")
    first_step_ns: int | None = member("Time of the first step, with compilation.", "span `first step`", default=None)
    feed_wait_ns: int | None = member(
        "Time for which the trainer waited for blocks of input. Your own script may wait for elements of tf.data.",
        "sum of the spans `get` and `await block`; for your own script of `get` and, in its main thread, `input wait`",
        default=None,
    )
    main_ns: int | None = member(
        "Duration of your main function; only for your own script.",
        "span `user code` of the rank; null if the span was truncated",
        default=None,
    )
    device: Literal["cpu", "gpu"] | None = member("Device on which TensorFlow computed.", default=None)
    cores: int | None = member("Cores available to a rank.", "done-marker: sched_getaffinity", default=None, minimum=1)
    intra_op_threads: int | None = member(
        "Threads that TensorFlow uses within an operation; 0 selects TensorFlow's default, `cores`.",
        "done-marker: tf.config.threading",
        default=None,
    )
    inter_op_threads: int | None = member(
        "Operations that TensorFlow runs in parallel; 0 selects TensorFlow's default, `cores`.",
        "done-marker: tf.config.threading",
        default=None,
    )

    @property
    def name(self) -> str:
        """Role and index, such as `chief 0`."""
        return f"{self.role} {self.index}"


# ---- training


@described()
class Quantiles:
    """Quantiles of step times; None if a quantile needs more steps than were measured."""

    p50_ns: int | None = member("Median.", QUANTILE.format("0.5", 5))
    p90_ns: int | None = member("90th percentile.", QUANTILE.format("0.9", 29))
    p95_ns: int | None = member("95th percentile.", QUANTILE.format("0.95", 59))
    p99_ns: int | None = member("99th percentile.", QUANTILE.format("0.99", 299))
    max_ns: int = member("Maximum.", "longest step time")


@described()
class Throughput:
    """Samples per second of the whole job. See `dlobd.measures.throughput`."""

    warmup_steps: int = member("Number of excluded warm-up steps.", "constant, tf_cnn_benchmarks' default")
    steps: int = member("Number of measured steps.", "the chief's spans `step`, minus `warmup_steps`", minimum=2)
    samples_per_step: int = member("Samples per step, all ranks.", "`batch_size * workers`", unit="samples", minimum=1)
    mean: float = member(
        "Mean throughput.",
        "`samples_per_step` / mean of the chief's step times including input wait, without checkpoints and evaluations",
        unit="samples/s",
    )
    uncertainty: float = member(
        "Standard error of the mean over this run's steps, assuming independent steps. Not the variation between runs.",
        "standard deviation / sqrt(n) of the n step speeds, `samples_per_step` / step time with input wait",
        unit="samples/s",
    )
    jitter: float = member(
        "Spread of the step speeds, robust against outliers.",
        "1.4826 * median absolute deviation of the step speeds from their median",
        unit="samples/s",
    )
    step: Quantiles = member("Step time without input wait: forward and backward pass, exchange, update.")
    step_with_input: Quantiles = member("Step time including the wait for its input.")


@described()
class Epoch:
    """A completed pass over the training samples; for the user's own script, an epoch of Keras, or a pass over a
    tf.data iterator in which a step ran."""

    epoch: int = member("Index of the epoch, from 1.", "own mark `epoch done` of the chief", minimum=1)
    end_ns: int = member(
        "End of the epoch's last step, and of its checkpoint if the epoch wrote a checkpoint.",
        "own mark `epoch done` of the chief",
        minimum=None,
    )
    ns: int = member(
        "Duration without evaluations.",
        "`end_ns` - start; start: the chief's `first batch`, or the end of the previous epoch's evaluation",
    )
    loss: float | None = member(
        "Mean loss of the epoch's steps; for your own script Keras's `loss`, null without Keras.",
        "own mark `epoch done` of the chief",
        unit="nats",
        minimum=None,
    )
    test_samples: int | None = member(
        "Number of test samples evaluated after the epoch.",
        "own mark `epoch evaluated` of the chief; without it, for the last epoch, the evaluation of the stored model",
    )
    test_accuracy: float | None = member(
        "Fraction of the test samples classified correctly.",
        "correct / all; as `test_samples`",
        unit="share",
        maximum=1,
    )
    evaluation_ns: int | None = member(
        "Time from the end of the epoch until its test accuracy was known.",
        "own mark `epoch evaluated` - `end_ns`; for the stored model `evaluated` - `end_ns`, with time to store",
    )

    @property
    def known_ns(self) -> int | None:
        """Time at which the epoch's test accuracy was known; None without an evaluation."""
        return self.end_ns + self.evaluation_ns if self.evaluation_ns is not None else None


@described()
class TimeToAccuracy:
    """Time until a test accuracy of `target` was known, from two starting points."""

    target: float = member("Target accuracy.", "`configuration.target_accuracy`", unit="share", maximum=1)
    epoch: int | None = member(
        "First epoch that reached the target; null if no epoch did.",
        "first of `epochs` with at least that `test_accuracy`",
        minimum=1,
    )
    from_submit_ns: int | None = member("Time since the window began.", "`end_ns + evaluation_ns - window.start_ns`")
    from_first_touch_ns: int | None = member(
        "Time since the first touch of the training data.", "the epoch's `end_ns + evaluation_ns` - `first_touch.at_ns`"
    )
    reason: str | None = member("Reason why no epoch reached the target, with the accuracy that was reached.")


@described()
class ExchangeUse:
    """Gradient exchange of one rank, summed over its steps, including left-out spans; None for parts that the exchange
    does not separate, or if a sum of left-out spans is lost."""

    role: str = member("Role: chief or worker.")
    index: int = member("Index within its role.", "own mark")
    calls: int = member("Number of exchanges.", "spans `exchange` of whole steps")
    bytes: int | None = member("Packed bytes of all exchanges.", "sum over its spans `pack` of their `bytes`")
    compute_ns: int | None = member("Forward and backward pass, and update.", "spans `forward and backward`, `apply`")
    exchange_ns: int = member("Time of the exchanges, including their parts.", "sum of its spans `exchange`")
    pack_ns: int | None = member("Time to copy tensors into send buffers.", "sum of its spans `pack`")
    wait_for_peers_ns: int | None = member("Wait for the slowest rank to pack.", "sum of its spans `wait for peers`")
    wire_ns: int | None = member("Time of the collective, or of push and pull.", "sum of its spans `wire`")
    unpack_ns: int | None = member("Time to copy received bytes into tensors.", "sum of its spans `unpack`")
    overlap: float | None = member(
        "Overlap of compute and exchange, as a fraction of the shorter of both (Hashemi et al. 2019).",
        "max(0, (M + P - U) / min(M, P)), with M = `compute_ns`, P = `exchange_ns`, U = sum of the step times",
        unit="share",
    )


@described()
class PythonWork:
    """Parts of the time of ended tasks in Python workers. Times of parallel tasks add up."""

    stage: str = member("ID of the stage; `2.3` is stage 3 of the second application.")
    evaluation: str = member("Kind of evaluation in PySpark's `PythonEvalType`. NON_UDF: an RDD.")
    tasks: int = member("Number of tasks; a task counts once per Python worker.", "spans `user code` of the workers")
    ns: int = member("Time in which the workers processed rows.", "clock of the worker; the sum of the parts")
    function: str = member(
        "measured: each call of the function was timed. sampled: it is called for each row, and some calls were timed. "
        "unknown: it cannot be separated from PySpark's loop."
    )
    function_ns: int | None = member(
        "Time of the user's function. null: unknown.", "timed calls; sampled: each counts for the calls before it"
    )
    loop_ns: int | None = member("Time of PySpark's loop. null: unknown.", "`function_and_loop_ns - function_ns`")
    function_and_loop_ns: int = member("Time of function and PySpark loop.", "`ns - serialise_ns - read_ns - write_ns`")
    serialise_ns: int = member("Time to serialise and deserialise rows, with Arrow and pandas.", "calls per batch")
    read_ns: int = member("Time of reads from the JVM, which include waits for rows.", "calls of the socket")
    write_ns: int = member("Time of writes to the JVM.", "calls of the socket")


@described()
class Plane:
    """One kind of traffic between the job's processes, with its transport."""

    plane: str = member("exchange: gradients; tensorflow-grpc: TensorFlow's gRPC; spark: RPC, shuffle; hdfs: blocks.")
    kind: Literal["verbs", "ipoib", "tcp", "shm", "local", "mixed", "unknown"] = member("Transport that was used.")
    device: str = member("RDMA devices and ports, separated by commas; empty without RDMA.")
    interface: str = member("Network interface of the IP or RoCE traffic; lo between ranks of one host.")
    addresses: tuple[str, ...] = member("Addresses of the endpoints.")
    soft: bool = member("True for software devices such as Soft-RoCE, whose speed is not that of RDMA hardware.")
    evidence: tuple[str, ...] = member("Sentences that quote library messages and counters of kernel and devices.")
    asked: str = member("Requested channel; empty without a request.")
    agrees: bool | None = member(
        "True if the requested channel was used; null if unknown or not requested. False makes the run invalid."
    )

    def disagreement(self) -> str:
        """Describe a mismatch of the requested and the used channel in one line; return "" without a mismatch."""
        if self.agrees is not False:
            return ""
        if self.kind == "unknown":
            return f"{self.plane}: {self.asked} was requested and not used: {self.evidence[-1]}"
        where = self.device or self.interface
        line = f"{self.plane}: {self.asked} was requested, and {self.kind}{f' ({where})' if where else ''} was used"
        # a requested network ("/") cannot be read from the interface's name
        return f"{line}: {self.evidence[-1]}" if "/" in self.asked else line


# ---- recording, checks


@described()
class LoopCost:
    """Cost of dlobd's recording in the training loop of the slowest rank."""

    rank: str = member("Role and index of the rank.")
    length_ns: int = member("Time from first batch to last step.", "`last step done` - `first batch`; own marks")
    spans: int = member("Number of spans that began in that time, in all threads of the rank.", "own marks")
    ns: int | None = member(
        "Estimated cost of recording these spans.",
        "`spans * span_cost_ns`; includes writing, which may run in parallel to the loop",
    )
    share: float | None = member("Fraction of the loop's duration.", "`ns / length_ns`")


@described()
class RecordingCost:
    """Cost of recording a run. See `dlobd.measures.recording_cost`."""

    recording: Literal["on", "off"] = member("State of the recorder. off: DLOBD_TRACE was off, without a breakdown.")
    span_cost_ns: int | None = member(
        "CPU time to record one span, measured on the client's machine just before the window.",
        "median of 7 times 100 spans with cold caches; evidence/span_cost.json",
    )
    spans: int = member("Number of spans in the span files of all processes.", "lines of spans/ that begin a span")
    lines: int = member("Number of complete lines in the span files.", "readable lines of spans/")
    lost_lines: int = member(
        "Number of lines that could not be written to disk.",
        "sum over all processes: the larger count of two, the last `cost` line and the message on stderr",
    )
    left_out: int | None = member(
        "Spans that were not written: calls into the JVM below 1 ms, and spans inside summed steps "
        "(`record_every_steps`).",
        COST_LINES,
        unit="spans",
    )
    flush_ns: int | None = member(
        "Time to format and write spans, over all processes and threads. It overlaps the job.",
        f"{COST_LINES}; misses up to 1 s at the end of each process",
    )
    flush_cpu_ns: int | None = member("CPU time of the writing threads in that time.", "as `flush_ns`")
    span_bytes: int = member("Size of the span files before their compression.", "sizes of their lines")
    log_bytes: int = member(
        "Size of the logs that dlobd's settings enable.",
        "sizes of Spark's event log, driver.log, spark.log, the JVM logs, the NameNode's audit log and the DataNodes' "
        "client traces",
    )
    chain_spans: int = member(
        "Number of the recorder's own spans on the critical path.",
        "own marks that begin while their lane is on the critical path, without marks of other threads",
    )
    chain_ns: int | None = member(
        "Estimated cost of recording these spans. The layers' times include it.", "`chain_spans * span_cost_ns`"
    )
    chain_share: float | None = member("Fraction of the wall time.", "`chain_ns / wall_ns`")
    loop: LoopCost | None = member("Cost in the slowest rank's training loop; null if no rank recorded its training.")


Number = int | float
Verdict = Literal["pass", "fail", "unknown"]


@described()
class Check:
    """Comparison of one quantity from two sources."""

    code: str = member("Stable name of the check; other programs may depend on it.")
    verdict: Verdict = member("fail: the run is invalid. unknown: a source is incomplete, or the difference harmless.")
    message: str = member("Sentence with both figures, or with the reason for verdict unknown.")
    left: Number | None = member("First figure.", "`left_source`", unit="as in `left_source`", minimum=None)
    left_source: str = member("First source, and the unit of its figure.")
    right: Number | None = member("Second figure.", "`right_source`", unit="as in `right_source`", minimum=None)
    right_source: str = member("Second source, and the unit of its figure.")


@described()
class Finding:
    """A cause of overhead, its evidence, and the setting that saves time."""

    finding: str = member("Code of the finding.")
    layer: str = member("Layer of the lost time.")
    says: str = member("Sentence with the lost time and its percentage of the wall time.")
    ns: int = member("Wall time of the cause.", "sum of the cause's segments in the attribution")
    saves_ns: int = member(
        "Upper bound of the saving.",
        "wall time - wall time of a replay of the trace without the cause; see findings.md",
    )
    lo_ns: int = member("Lower bound of the saving; above 0.", "`saves_ns` - resolution at bounds of the removed spans")
    above_noise: bool = member("True if lo_ns exceeds run-to-run noise. These findings come first.")
    evidence: tuple[str, ...] = member("Evidence, one item per line: spans with durations, figures from other sources.")
    remedy: str = member("Change that saves the time, with the setting; an imperative sentence.")
    unless: str = member('Condition under which the remedy does not help; text after the word "unless".')


@described()
class LostWork:
    """Task attempts of Spark whose results were not used, with the same cause. It is wall time only if a job waited."""

    cause: str = member("Cause: failed, killed, executor lost, or computed again after its result was lost.")
    attempts: int = member("Number of attempts.", "driver's log")
    ns: int | None = member(
        "Time of the attempts. null: the end of an attempt is unknown.",
        "sum over attempts: from the start until the driver noticed the end, or until the end in the executor's log",
    )
    messages: tuple[str, ...] = member("Distinct error messages of failed attempts.", "event log", default=())


@described()
class Phase:
    """Part of the window. The phases follow each other without gaps, so their times sum to the wall time."""

    phase: Literal["start-up", "training", "Spark jobs", "teardown"] = member(
        "Name of the phase. A run without training steps has Spark jobs instead."
    )
    ns: int = member(
        "Duration of the phase.",
        "training: earliest `first batch` or step to latest `last step done` or step; Spark jobs: start of the first "
        "job to end of the last",
    )


@described()
class Application:
    """A YARN application of the run."""

    application_id: str = member("Application ID, such as `application_1700000000000_0001`.")
    tracking_url: str | None = member("The ResourceManager's tracking URL. null: not collected.")


@described(kw_only=True)
class Failure:
    """Facts about a run that is not ok. `reason` has its reason."""

    phase: str | None = member("Last phase that began: start-up, training, Spark jobs, teardown.", default=None)
    after: str | None = member("Last event, if the run ended in its start-up.", default=None)
    file: str | None = member("Your script or model with the error. null: its traceback is unknown.", default=None)
    line: int | None = member("Line of the error.", "innermost frame of `file` in the traceback", default=None)
    traceback: tuple[str, ...] = member("Last lines of the Python traceback; empty if it is unknown.", default=())
    java_cause: str | None = member("Innermost cause of a Java stack trace. null: no stack trace.", default=None)
    log: str | None = member("Log with the error, a path inside the bundle. null: there is no log.", default=None)
    next_step: str | None = member("Next step. null: read the log.", default=None)
    no_spark: bool = member("True if the script started no SparkContext: there is no breakdown.", default=False)


@described()
class Omitted:
    """A part of the record that could not be computed."""

    part: str = member("Member of run.json, or `trace` or `attribution`, without which the run is invalid.")
    reason: str = member("The failure, or the exceeded limit of CPU time or memory.")


@described()
class Noise:
    """Noise of a machine. Times are in nanoseconds; None if the kernel does not report a figure."""

    timer_ns: int = member("Interval between two consecutive clock readings.", "median of 2,000; CLOCK_MONOTONIC")
    sleep_over_p50_ns: int = member("Median overshoot of a 1 ms sleep.", "median of 300 sleeps, minus 1 ms")
    sleep_over_p99_ns: int = member("99th percentile of the overshoot of a 1 ms sleep.", "300 sleeps, minus 1 ms")
    loop_variation: float = member(
        "Coefficient of variation of a fixed CPU loop.",
        "standard deviation / mean of 8 loops of about 25 ms",
        unit="share",
    )
    loop_slowest: float = member("Time of the slowest loop, relative to the median.", "of these 8 loops", unit="share")
    steal_share: float | None = member(
        "Fraction of the CPU time that the hypervisor gave to other virtual machines.",
        "steal / all CPU time during the measurement; null if the kernel does not report it; /proc/stat",
        maximum=1,
    )
    loopback_p50_ns: int = member("Median round trip of 64 bytes over loopback.", "median of 400 TCP round trips")
    loopback_p99_ns: int = member("99th percentile of the round trip of 64 bytes over loopback.", "400 TCP round trips")
    load_1m: float = member("Load average over the last minute.", "/proc/loadavg", unit="processes")
    machine: str = member("Measured machine: the whole cluster, or only the client.", default="")
    earlier_walls_ns: tuple[int, ...] | None = member(
        "Wall times of earlier runs of the same experiment on this machine, oldest first. null: not read.",
        "`wall_ns` of `ok` runs with equal `experiment_key` and machine among the folder's latest 50 runs",
        default=None,
    )
    assumed: float | None = member(
        "Noise that findings assume for fewer than 6 earlier runs, as a fraction of the wall time. null: 0.1.",
        "`noise` of the user's configuration file",
        unit="share",
        default=None,
    )


@described()
class Checkout:
    """State of dlobd's git checkout."""

    commit: str | None = member("Commit of HEAD.")
    dirty: bool | None = member("True if tracked files differ from the commit.")


# ---- the record


@described()
class RunProcess:
    """The dlobd process of a run. `domain` names machine, boot and time namespace."""

    pid: int = member("Process ID.", "dlobd itself")
    start_ticks: int = member("Start time in clock ticks since boot.", "/proc", unit="ticks")
    domain: str = member("Host, boot ID and time namespace, separated by slashes.")


@described(kw_only=True)
class Computed:
    """Members of run.json that are computed from a bundle's evidence."""

    status: Status = member(
        "ok: the job succeeded. failed: the job did not finish. invalid: the job finished, but a check failed. "
        "interrupted: the user or the system ended the job. running: the run has not ended."
    )
    reason: str | None = member("Reason for a status other than ok, in one line.", pattern="^[^\n]*$")
    window: Window | None = member("Interval of the wall time.", default=None)
    wall_ns: int | None = member("Duration of the window.", "`window.end_ns - window.start_ns`", default=None)
    layers: tuple[LayerTime, ...] = member(
        "Wall time by layer; with `unattributed_ns` the sum is `wall_ns`.", default=()
    )
    unattributed_ns: int | None = member(
        "Wall time without an open span, or without the source that shows its layer.",
        "sum of the segments of the main lane without an open span",
        default=None,
    )
    not_measured: tuple[NotMeasured, ...] = member("Layers without a measured time.", default=())
    intervals: tuple[Interval, ...] = member(
        "Time hidden inside another layer, known only between two bounds: by lane, or sums of more than 1,000.",
        default=(),
    )
    clips: tuple[Clip, ...] = member("Corrections that dlobd made to inconsistent evidence.", default=())
    failure: Failure | None = member("Facts about the failure. null: the run is ok.", default=None)
    applications: tuple[Application, ...] = member("YARN applications of the run, in their order.", default=())
    phases: tuple[Phase, ...] = member("Wall time by phase. Empty: no training and no Spark job began.", default=())
    startup: tuple[Event, ...] = member("Events from exec of spark-submit to the first step, in order.", default=())
    teardown: tuple[Event, ...] = member("Events from the last step to the exit of spark-submit.", default=())
    hdfs: tuple[HdfsUse, ...] = member("HDFS work by purpose.", default=())
    ranks: tuple[RankSteps, ...] = member("Steps of each rank.", default=())
    metrics: Metrics = member("Results of the training.")
    throughput: Throughput | None = member(
        "Samples per second of the whole job, as in tf_cnn_benchmarks, and step times. null: too few steps recorded.",
        default=None,
    )
    epochs: tuple[Epoch, ...] = member("Completed epochs, with test accuracy if it was evaluated.", default=())
    first_touch: Event | None = member(
        "First touch of the training data: the first `open` of a training file in the NameNode's audit log. Without an "
        "audit log: the executor's input-split line (possibly seconds earlier) or a reading rank's own mark, whichever "
        "is earlier. `time_to_accuracy.from_first_touch_ns` starts here. null: no source shows the first touch.",
        default=None,
    )
    time_to_accuracy: TimeToAccuracy | None = member("Time to the target accuracy. null: no target.", default=None)
    overhead: RecordingCost | None = member("Cost of dlobd's own recording. null: not measured.", default=None)
    resources: ResourceUse | None = member(
        "Sampled resource use of dlobd's machine and the run's processes, without external nodes. null: no samples.",
        default=None,
    )
    core_waits: CoreWaits | None = member("Wall time by state of threads. null: no readings.", default=None)
    imports: tuple[Import, ...] = member(
        "Imports of Python packages, by process and importer: at most 2,000.", default=()
    )
    findings: tuple[Finding, ...] = member("Causes of overhead with a remedy, sorted by saving.", default=())
    spark_metrics: SparkMetrics | None = member("Task metrics, as in sparkMeasure. null: no task ended.", default=None)
    python_work: tuple[PythonWork, ...] = member(
        "Parts of the time inside Python workers of your own script, by stage and kind of evaluation.", default=()
    )
    transport: tuple[Plane, ...] | None = member("Transport of each plane. null: not examined.", default=None)
    exchange: tuple[ExchangeUse, ...] = member(
        "Gradient exchange of each rank, summed over its steps; empty if TensorFlow exchanges inside the step.",
        default=(),
    )
    lost_work: tuple[LostWork, ...] = member("Time of Spark's task attempts without a used result.", default=())
    checks: tuple[Check, ...] = member("Comparisons of one quantity from two sources.", default=())
    noise: Noise | None = member("Noise of the machine just before the window. null: not measured.", default=None)
    page_cache: PageCache | None = member(
        "Training files, or their HDFS blocks, in the page cache at the start of the window. null: unknown.",
        default=None,
    )
    environment_cache: EnvironmentCache | None = member(
        "Cached files of the environment. null: not read.", default=None
    )
    warnings: tuple[str, ...] = member("Warnings for readers of the report, one line each.", default=())
    omitted: tuple[Omitted, ...] = member("Parts that failed or exceeded a limit; usually empty.", default=())

    def to_json(self) -> dict[str, object]:
        """Convert the members to a dict of JSON values."""
        return dict(plain(self))


@described(kw_only=True)
class Run(Computed):
    """Immutable record of one run: the content of run.json."""

    schema_version: int = member("Version of the format of run.json.", "constant of the dlobd version")
    run_id: str = member("UTC start time and four random digits.", pattern="^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}$")
    experiment: str = member("Name of the experiment.")
    experiment_key: str = member("Hash that is equal for equal configurations.", pattern="^[0-9a-f]{16}$")
    configuration: Runnable = member("Complete configuration of the experiment, or of your own job with its script.")
    started_at: str = member("Start time of the run, UTC, ISO 8601.")
    command: tuple[str, ...] = member("Command line that submitted the job; empty if nothing was submitted.")
    setup: Mapping[str, int | None] = member(
        "Durations of activities outside the window: cluster_up_ns, staging_ns, collect_ns, cluster_down_ns ...",
        "dlobd's clock around the activity; `cluster_up_ns` is null if a cluster was already up",
        unit="ns",
    )
    platform: Mapping[str, str | int | float | bool | None] = member(
        "Machine: system, kernel, architecture, processor, cores, memory_bytes ...; the user's hadoop_settings.",
        "operating system, at the start of the run",
        unit="cores, bytes, load",
        minimum=None,
    )
    versions: Mapping[str, str | None] = member("Versions of dlobd, Python, Java, Hadoop, Spark, TensorFlow ...")
    git: Checkout | None = member("State of dlobd's git checkout. null: no checkout.")
    seeds: Mapping[str, int] = member("Random seeds by use.", "experiment file", minimum=None)
    process: RunProcess | None = member("Running dlobd process. null: ended, or before `dlobd collect`.", default=None)

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Self:
        """Build a run from the parsed content of run.json, which `dlobd.bundle.store` validates.
        Raises KeyError or TypeError if the content is not a run."""
        return decoded(cls, record)

    def with_computed(self, computed: Computed) -> Self:
        """Return a copy of the run with its computed members replaced by `computed`."""
        return dataclasses.replace(self, **{f.name: getattr(computed, f.name) for f in dataclasses.fields(Computed)})

    @property
    def own(self) -> bool:
        """True if the run executed the user's own script."""
        return isinstance(self.configuration, OwnJob)

    @property
    def busy(self) -> bool:
        """True if other processes of the machine delayed the run; False if that is unknown."""
        return bool(self.core_waits and self.core_waits.busy)

    @property
    def unexplained_ns(self) -> int:
        """Unexplained and unattributed wall time."""
        return (self.unattributed_ns or 0) + sum(layer.unexplained_ns for layer in self.layers)

    @property
    def training_ns(self) -> int | None:
        """Duration of the training; None if it is unknown."""
        phase = next((row.ns for row in self.phases if row.phase == "training"), None)
        return self.metrics.training_ns if phase is None else phase

    def from_submit_ns(self, epoch: Epoch) -> int | None:
        """Return the time from the start of the window until an epoch's accuracy was known."""
        return epoch.known_ns - self.window.start_ns if self.window and epoch.known_ns is not None else None

    def from_first_touch_ns(self, epoch: Epoch) -> int | None:
        """Return the time from the first touch of the data until an epoch's accuracy was known."""
        touched = self.first_touch
        return epoch.known_ns - touched.at_ns if touched and epoch.known_ns is not None else None

    def event_ns(self, name: str) -> int | None:
        """Return the timestamp of a start-up or teardown event; the latest if several ranks have the event."""
        return max((event.at_ns for event in (*self.startup, *self.teardown) if event.event == name), default=None)
