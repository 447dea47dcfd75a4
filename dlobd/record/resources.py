"""Members of run.json for resource use: samples, waits for a core, page cache, imports, Spark's metrics."""

from collections.abc import Mapping
from typing import Literal

from dlobd.fields import described, member

COUNTER = "growth of the counter in the window, interpolated linearly between samples"
LAYER_COUNTER = "growth of the host's counter during the layer's segments"
THREADS = "growth in the window"


# ---- resources, by sampling


@described()
class HostUse:
    """Use of one machine in the window."""

    host: str = member("Hostname.")
    machine: str = member("Role of the machine in the run.")
    cores: int = member("Number of CPU cores.", "psutil")
    memory_bytes: int = member("Size of the memory.", "psutil")
    sampled_ns: int = member("Sampled part of the window.", "overlap of the window with [first sample, last sample]")
    cpu_busy_ns: int = member("CPU time of all processes.", f"{COUNTER}; /proc/stat: user, nice, system, irq, softirq")
    cpu_stolen_ns: int = member("CPU time that the hypervisor gave to other machines.", f"{COUNTER}; /proc/stat: steal")
    processes_cpu_ns: int = member(
        "CPU time of the sampled processes.",
        "sum of user and system time of dlobd, the cluster's daemons and all their descendants",
    )
    unseen_cpu_ns: int = member(
        "CPU time of short-lived children of these processes between two samples, over the whole sampled time.",
        "growth of each process's CPU time of reaped children, minus the last samples of these children; at least 0",
    )
    memory_used_peak_bytes: int = member("Peak of the memory in use.", "largest sample of total minus available memory")
    disk_read_bytes: int | None = member("Bytes read from its disks, if any.", f"{COUNTER}; disks with hardware")
    disk_written_bytes: int | None = member("Bytes written to its disks, if any.", f"{COUNTER}; disks with hardware")
    loopback_bytes: int | None = member("Bytes sent over loopback, counted once.", f"{COUNTER}; received on `lo`")
    net_received_bytes: int = member(
        "Bytes received over interfaces other than loopback.",
        f"{COUNTER}; interfaces with hardware; in a container all except `lo`",
    )
    net_sent_bytes: int = member("Bytes sent over these interfaces.", "as `net_received_bytes`")


@described()
class ProcessUse:
    """Resource use of one process in the window, or the sum of `count` processes with equal names, without a PID."""

    role: str = member("Role of the process; other: a process that is not part of the run.")
    index: int = member("Index within its role.", "index from dlobd's recorder, the executor ID, or the daemon's name")
    pid: int | None = member("Process ID; null for several processes.", "psutil")
    name: str = member("Process name in the kernel.")
    count: int = member("Number of processes in this row.", "psutil", unit="processes")
    cpu_ns: int = member("CPU time in the window.", f"{COUNTER}; from 0 at the process's start; in ticks of 10 ms")
    rss_peak_bytes: int = member("Peak of the resident memory; of several processes, the largest.", "largest sample")
    read_bytes: int | None = member("Bytes read from disks; null if not reported.", f"{COUNTER}; /proc/PID/io")
    write_bytes: int | None = member("Bytes written to disks; null if not reported.", f"{COUNTER}; /proc/PID/io")


@described()
class LayerUse:
    """Resource use of dlobd's machine during a layer's wall time; None if no part of that time was sampled."""

    layer: str = member("A layer, or unattributed.")
    ns: int = member("Wall time of the layer.", "as `layers[].ns`, and `unattributed_ns`")
    sampled_ns: int = member("Sampled wall time of the layer.", "as `hosts[].sampled_ns`, over the layer's segments")
    cpu_busy_share: float | None = member("Busy fraction of all cores.", "`cpu_busy_ns / (sampled_ns * cores)`")
    gpu_busy_share: float | None = member(
        "Fraction of the time in which GPUs were busy; null without a GPU.",
        "mean over the GPUs, as `gpus[].busy_share`",
    )
    cpu_busy_ns: int | None = member("CPU time.", f"{LAYER_COUNTER}; the sum over the layers is the host's CPU time")
    disk_read_bytes: int | None = member("Bytes read from disks.", LAYER_COUNTER)
    disk_written_bytes: int | None = member("Bytes written to disks.", LAYER_COUNTER)
    loopback_bytes: int | None = member("Bytes sent over loopback, counted once.", LAYER_COUNTER)
    net_received_bytes: int | None = member("Bytes received over interfaces other than loopback.", LAYER_COUNTER)
    net_sent_bytes: int | None = member("Bytes sent over these interfaces.", LAYER_COUNTER)


@described()
class GpuUse:
    """Use of one GPU of dlobd's machine in the window."""

    index: int = member("Index of the GPU.", "NVML")
    name: str = member("Product name.")
    memory_bytes: int = member("Size of the memory.", "NVML")
    busy_share: float | None = member(
        "Fraction of the window in which the GPU was busy.",
        "mean of the sampled utilisation, weighted by the time since the previous sample; NVML",
    )
    memory_used_peak_bytes: int | None = member("Peak of the memory in use.", "largest sample; NVML")


@described()
class ResourceUse:
    """Sampled resource use. See `dlobd.measures.resource_use`."""

    period_ns: int = member("Requested sampling period.", "constant of the sampler")
    samples: int = member("Samples in the window.", "evidence/resources.jsonl")
    longest_gap_ns: int = member("Longest time between two samples.", "largest difference of successive timestamps")
    cost_ns: int = member("CPU time of dlobd's sampler in the window.", "CPU clock of the sampler")
    hosts: tuple[HostUse, ...] = member("The sampled machines.")
    processes: tuple[ProcessUse, ...] = member("The run's processes, and all other processes grouped by name.")
    layers: tuple[LayerUse, ...] = member("Resource use during each layer's wall time.")
    gpus: tuple[GpuUse, ...] = member("The GPUs of dlobd's machine.")


# ---- waits for a core


@described()
class LaneTime:
    """Split of a part of the wall time by thread state: on a core, waiting for a core, blocked, or unknown.
    The four states sum to `ns`; members with `lo` and `hi` bound on_core_ns and waiting_ns."""

    ns: int = member("Duration of this part.", "sum of its segments")
    on_core_lo_ns: int = member(
        "Lower bound of on_core_ns.",
        "sum over the intervals between readings: growth - time of the interval outside of this part, at least 0",
    )
    on_core_hi_ns: int = member(
        "Upper bound of on_core_ns.",
        "sum over the intervals between readings: growth, at most the time inside of this part",
    )
    waiting_lo_ns: int = member("Lower bound of waiting_ns.", "as `on_core_lo_ns`")
    waiting_hi_ns: int = member("Upper bound of waiting_ns.", "as `on_core_hi_ns`")
    on_core_ns: int = member("Time on a core.", "growth of the counters of each segment's thread, interpolated")
    waiting_ns: int = member("Time of waiting for a core.", "as `on_core_ns`; second number of schedstat")
    blocked_ns: int = member(
        "Time blocked: asleep, or waiting for a lock, a disk or a message.",
        "`ns - on_core_ns - waiting_ns - unknown_ns`",
    )
    unknown_ns: int = member("Time without readings, or without a thread of the run.", "remainder of `ns`")


@described()
class LayerWaits(LaneTime):
    """Split of a layer's wall time by thread state."""

    layer: str = member("A layer, or unattributed.", default="")


@described()
class ThreadUse:
    """Counters of one process in the window. Sums over threads are thread time, not wall time."""

    host: str = member("Hostname.")
    role: str = member("Role of the process.")
    index: int = member("Index within its role.", "index from dlobd's recorder, or the executor ID")
    pid: int = member("Process ID.", "dlobd's recorder; psutil")
    source: str = member("Source of the counters: own marks (dlobd's recorder), samples, or both.")
    main_on_core_ns: int | None = member("Core time of the lane's threads.", f"{THREADS}; /proc/PID/task/TID/schedstat")
    main_waiting_ns: int | None = member("Time in the run queue of these threads.", f"{THREADS}; its second number")
    on_core_ns: int | None = member("Time on a core of all threads, also ended.", f"{THREADS}; the process's CPU clock")
    waiting_ns: int | None = member("Run queue time of all observed threads.", "sum of their last readings; schedstat")
    ended_on_core_ns: int | None = member(
        "Part of on_core_ns used by threads that ended between readings.",
        "`on_core_ns` - sum of the threads' last readings",
    )
    read_bytes: int | None = member("Bytes read from disks; null if not reported.", f"{THREADS}; /proc/PID/io")
    major_faults: int | None = member("Page faults that read from a disk.", f"{THREADS}; /proc/PID/stat", unit="pages")
    block_io_ns: int | None = member(
        "Thread time blocked on disk I/O; null if the kernel does not count it.",
        f"{THREADS}, in ticks of 10 ms; /proc/PID/stat, with `delayacct`",
    )


@described()
class Pressure:
    """Stalls of a host's tasks, from the kernel's pressure stall information (PSI)."""

    host: str = member("Hostname.")
    sampled_ns: int = member("Part of the window with readings.", "overlap of the window with [first, last reading]")
    cpu_ns: int = member("Time in which a task waited for a core.", f"{THREADS}; `some` in /proc/pressure/cpu")
    io_ns: int = member("Time in which a task was blocked on disk I/O.", f"{THREADS}; `some` in /proc/pressure/io")


@described()
class CoreWaits:
    """Split of the wall time by thread state. See `dlobd.measures.core_waits`."""

    whole: LaneTime = member("The whole wall time.")
    layers: tuple[LayerWaits, ...] = member("Each layer, and unattributed.")
    unknown: tuple[tuple[str, int], ...] = member(
        "Reasons and durations of the unknown part of the wall time, as [reason, ns].",
        "segments without a thread, or outside the readings of their thread",
        unit="ns",
    )
    processes: tuple[ThreadUse, ...] = member("Processes of the run with thread readings.")
    pressure: tuple[Pressure, ...] = member("Stalls of the hosts' tasks.")
    foreign_cpu_ns: int | None = member(
        "CPU time of processes outside the run; null if dlobd cannot see all processes of the run.",
        "CPU time of the machine - CPU time of the run's processes; sum over the intervals between samples",
    )
    held_up_ns: int | None = member(
        "Wall time in which the run waited for cores that other processes used; null like foreign_cpu_ns.",
        "waiting time of the run x share of foreign_cpu_ns in the CPU time; sum over these intervals",
    )
    busy: bool | None = member("True if held_up_ns exceeds 2 % of the wall time; comparisons exclude such runs.")


# ---- caches, imports


CacheState = Literal["cold", "partly", "warm"]

COLD, WARM = 0.5, 0.9
"""Thresholds of the cached fraction: below 50 % files are cold, from 90 % on warm. Warm is not 100 %, because two
starts of a job read parts of its environment that differ by a few percent."""


def cache_state(share: float) -> CacheState:
    """Classify files by the fraction of their bytes in the page cache."""
    return "cold" if share < COLD else "warm" if share >= WARM else "partly"


@described()
class PageCache:
    """Cache state of the training files, or of their HDFS blocks, at the start of the window."""

    asked: str = member("Requested state: as-is, warm or cold.")
    resident_bytes: int = member("Cached bytes at the start of the window.", "resident pages x page size; mincore")
    total_bytes: int = member("Size of the files; in HDFS, of all replicas.", "sum of their sizes")
    before_resident_bytes: int = member("Cached bytes before dlobd read or dropped the files.", "as `resident_bytes`")

    @property
    def state(self) -> CacheState | None:
        """State of the training files; None without files."""
        return cache_state(self.resident_bytes / self.total_bytes) if self.total_bytes else None


@described()
class EnvironmentPart:
    """Cached bytes of one group of files of the job's environment, before and after the job."""

    part: str = member("TensorFlow's libraries, Java's classes or Spark's jars.")
    state: CacheState | None = member("Cache state before the window. null: not used, or not reported by the kernel.")
    total_bytes: int | None = member("Size of the files.", "sum of their sizes")
    before_bytes: int | None = member("Cached bytes just before the window.", "as `page_cache.resident_bytes`")
    after_bytes: int | None = member(
        "Cached bytes just after the job. They count as the bytes that the job needed.",
        "as `page_cache.resident_bytes`",
    )

    @property
    def share(self) -> float | None:
        """Fraction of the needed bytes that was cached before the window."""
        return self.there_bytes / self.after_bytes if self.there_bytes is not None and self.after_bytes else None

    @property
    def there_bytes(self) -> int | None:
        """Needed bytes that were cached before the window; None if unknown."""
        if self.before_bytes is None or self.after_bytes is None:
            return None
        return min(self.before_bytes, self.after_bytes)


@described()
class EnvironmentCache:
    """Cache state of the job's environment at the start of the run. See `dlobd.measures.environment_cache`."""

    state: CacheState | None = member("State of the part with the smallest cached fraction.")
    parts: tuple[EnvironmentPart, ...] = member("Parts of the environment.")

    @property
    def share(self) -> float | None:
        """Smallest cached fraction of the parts; None if no fraction is known."""
        known = [part.share for part in self.parts if part.state and part.share is not None]
        return min(known, default=None)


@described()
class Import:
    """Import of a Python package that took 1 ms or more."""

    role: str = member("Role of the process.")
    index: int = member("Index within its role.", "dlobd's recorder")
    pid: int = member("Process ID.", "dlobd's recorder")
    package: str = member("Top-level package.")
    by: str = member("Package that imported it; empty for the program itself.")
    ns: int = member("Duration of the import, including nested imports.", "sum of its instants `package imported`")
    own_ns: int = member("Duration without nested imports.", "`ns` - duration of the nested imports of other packages")


# ---- Spark's own metrics


@described()
class StageMetrics:
    """One attempt of a Spark stage."""

    stage: int = member("Spark's stage ID.", "Spark's event log")
    attempt: int = member("Attempt number of the stage.", "Spark's event log")
    call: str | None = member("Call site in the job that created the stage; null if the stage's end was not logged.")
    skew_ns: int = member(
        "Duration of the slowest task minus that of the median task.",
        "maximum - median of the tasks' durations, `Finish Time` - `Launch Time`",
    )
    metrics: Mapping[str, int] = member("As `spark_metrics.metrics`.", "sums over the stage's tasks", unit="as there")


@described()
class SparkMetrics:
    """Spark's task metrics, with sparkMeasure's names and units. See `dlobd.measures.spark_metrics`."""

    metrics: Mapping[str, int] = member("Sums over all stages; listed below.", "sums over the stages", unit="as below")
    failed_tasks: int = member("Tasks that failed or were killed.", "tasks with an end reason other than `Success`")
    skew_ns: int = member("Sum of the skew of all stages.", "sum of `stages[].skew_ns`")
    stages: tuple[StageMetrics, ...] = member("All attempts of stages.")
