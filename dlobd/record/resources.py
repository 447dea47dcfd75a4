"""Members of run.json on resources: samples, waits for cores, caches, imports, Spark's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dlobd.fields import described, member

COUNTER = "growth of the counter in the window, linear between samples"
LAYER_COUNTER = "growth of the host's counter in the layer's segments"
THREADS = "growth in the window"


# ---- resources, by sampling


@described()
class HostUse:
    """Use of one machine in the window."""

    host: str = member("Its name.")
    machine: str = member("Its part in the run.")
    cores: int = member("Its cores.", "psutil")
    memory_bytes: int = member("Its memory.", "psutil")
    sampled_ns: int = member("Sampled part of the window.", "overlap of the window with [first sample, last sample]")
    cpu_busy_ns: int = member(
        "CPU time of all its processes.", f"{COUNTER}; /proc/stat: user, nice, system, irq, softirq"
    )
    cpu_stolen_ns: int = member("CPU time that the hypervisor gave to other machines.", f"{COUNTER}; /proc/stat: steal")
    processes_cpu_ns: int = member(
        "CPU time of the sampled processes.",
        "the same of all processes below dlobd and the cluster's daemons; user and system",
    )
    unseen_cpu_ns: int = member(
        "CPU time of children of these processes that no sample contains, over the whole sampled time.",
        "growth of a process's reaped time, minus the last samples of its ended children, if positive",
    )
    memory_used_peak_bytes: int = member("Peak of the memory in use.", "largest sample of total - available")
    disk_read_bytes: int | None = member(
        "Bytes read from its disks; null without disks.", f"{COUNTER}; disks with hardware"
    )
    disk_written_bytes: int | None = member("Bytes written to its disks.", f"{COUNTER}; disks with hardware")
    loopback_bytes: int | None = member(
        "Bytes sent over loopback; each byte counts once.", f"{COUNTER}; received on `lo`"
    )
    net_received_bytes: int = member(
        "Bytes received over its other interfaces.",
        f"{COUNTER}; interfaces with hardware; in a container all except `lo`",
    )
    net_sent_bytes: int = member("Bytes sent over them.", "as `net_received_bytes`")


@described()
class ProcessUse:
    """Use of one process in the window, or of `count` processes with one name, which then have no pid."""

    role: str = member("Its role; other: not one of the run's known processes.")
    index: int = member("Index within its role.", "own mark; the executor's id; the daemon's name")
    pid: int | None = member("Process ID; null for several processes.", "psutil")
    name: str = member("The kernel's name of its program.")
    count: int = member("Number of processes in this row.", "psutil", unit="processes")
    cpu_ns: int = member("CPU time in the window.", f"{COUNTER}; from 0 at the process's start; in ticks of 10 ms")
    rss_peak_bytes: int = member("Peak of its resident memory; of several, that of the largest.", "largest sample")
    read_bytes: int | None = member(
        "Bytes read from disks; null if the kernel does not report it.", f"{COUNTER}; /proc/PID/io"
    )
    write_bytes: int | None = member(
        "Bytes written to disks; null if the kernel does not report it.", f"{COUNTER}; /proc/PID/io"
    )


@described()
class LayerUse:
    """Use of dlobd's machine while the attributed time was a layer's; None where none of it was sampled."""

    layer: str = member("A layer, or unattributed.")
    ns: int = member("Wall time of the layer.", "as `layers[].ns`, and `unattributed_ns`")
    sampled_ns: int = member("Sampled part of it.", "as `hosts[].sampled_ns`, of its segments")
    cpu_busy_share: float | None = member("Share of all cores that was busy.", "`cpu_busy_ns / (sampled_ns * cores)`")
    gpu_busy_share: float | None = member(
        "Share of the time in which GPUs were busy; null without a GPU.", "mean over the GPUs, as `gpus[].busy_share`"
    )
    cpu_busy_ns: int | None = member("CPU time.", f"{LAYER_COUNTER}; sums to the host's")
    disk_read_bytes: int | None = member("Bytes read from disks.", LAYER_COUNTER)
    disk_written_bytes: int | None = member("Bytes written to disks.", LAYER_COUNTER)
    loopback_bytes: int | None = member("Bytes sent over loopback; each byte counts once.", LAYER_COUNTER)
    net_received_bytes: int | None = member("Bytes received over other interfaces.", LAYER_COUNTER)
    net_sent_bytes: int | None = member("Bytes sent over them.", LAYER_COUNTER)


@described()
class GpuUse:
    """Use of one GPU of dlobd's machine in the window."""

    index: int = member("Its number.", "NVML")
    name: str = member("Its name.")
    memory_bytes: int = member("Its memory.", "NVML")
    busy_share: float | None = member(
        "Share of the window in which it was busy.",
        "each sample's utilisation counts for the time since the previous sample; NVML",
    )
    memory_used_peak_bytes: int | None = member("Peak of its memory in use.", "largest sample; NVML")


@described()
class ResourceUse:
    """Resources by sampling. See `dlobd.measures.resource_use`."""

    period_ns: int = member("Requested sampling period.", "constant of the sampler")
    samples: int = member("Samples in the window.", "evidence/resources.jsonl")
    longest_gap_ns: int = member("Longest time between two samples.", "largest difference of successive samples")
    cost_ns: int = member("CPU time of the sampling in the window.", "the sampler's own CPU time")
    hosts: tuple[HostUse, ...] = member("The sampled machines.")
    processes: tuple[ProcessUse, ...] = member("The run's processes, and all others by their names.")
    layers: tuple[LayerUse, ...] = member("Use while the attributed time was a layer's.")
    gpus: tuple[GpuUse, ...] = member("The GPUs of dlobd's machine.")


# ---- waits for a core


@described()
class LaneTime:
    """Split of a part of the wall time by the state of the threads that execute it: on a core, ready, blocked, unknown.
    The last four sum to `ns`; `lo` and `hi` bound the first two."""

    ns: int = member("Duration.", "sum of its segments")
    on_core_lo_ns: int = member(
        "Lower bound of on_core_ns.",
        "per stretch between readings: growth - time of the stretch outside of this part; at least 0",
    )
    on_core_hi_ns: int = member(
        "Upper bound of on_core_ns.", "per stretch between readings: growth; at most the time inside of this part"
    )
    waiting_lo_ns: int = member("Lower bound of waiting_ns.", "as `on_core_lo_ns`")
    waiting_hi_ns: int = member("Upper bound of waiting_ns.", "as `on_core_hi_ns`")
    on_core_ns: int = member(
        "Time on a core.", "growth of the counters of each segment's thread, in proportion between two readings"
    )
    waiting_ns: int = member(
        "Time in the run queue, while others had the cores.", "as `on_core_ns`; second number of schedstat"
    )
    blocked_ns: int = member(
        "Time asleep, or waiting for a lock, a disk or a message.", "`ns - on_core_ns - waiting_ns - unknown_ns`"
    )
    unknown_ns: int = member("Time without readings of the thread, or without a thread of the run.", "rest of `ns`")


@described()
class LayerWaits(LaneTime):
    """The same split for a layer."""

    layer: str = member("A layer, or unattributed.", default="")


@described()
class ThreadUse:
    """Counters of one process in the window. Sums over threads are thread time, not wall time."""

    host: str = member("Its host.")
    role: str = member("Its role.")
    index: int = member("Index within its role.", "own mark; the executor's id")
    pid: int = member("Process ID.", "own mark; psutil")
    source: str = member("Reader of the counters: own marks, samples, or both.")
    main_on_core_ns: int | None = member(
        "Time on a core of the threads that execute its lane in turn.", f"{THREADS}; /proc/PID/task/TID/schedstat"
    )
    main_waiting_ns: int | None = member("Time for which they waited for a core.", f"{THREADS}; its second number")
    on_core_ns: int | None = member(
        "Time on a core of all its threads, with ended ones.", f"{THREADS}; the process's CPU clock"
    )
    waiting_ns: int | None = member(
        "Time for which all its observed threads waited for a core.", "sum of their last readings; schedstat"
    )
    ended_on_core_ns: int | None = member(
        "Part of on_core_ns that no living thread has: threads that ended unobserved.",
        "`on_core_ns` - sum of the threads' last readings",
    )
    read_bytes: int | None = member(
        "Bytes read from disks; null if the kernel does not report it.", f"{THREADS}; /proc/PID/io"
    )
    major_faults: int | None = member(
        "Page faults that had to wait for a disk.", f"{THREADS}; /proc/PID/stat", unit="pages"
    )
    block_io_ns: int | None = member(
        "Thread time blocked by disks; null if the kernel does not count it.",
        f"{THREADS}, in ticks of 10 ms; /proc/PID/stat, with `delayacct`",
    )


@described()
class Pressure:
    """Stalls of a host's tasks, by the kernel's pressure counters."""

    host: str = member("Its name.")
    sampled_ns: int = member("Read part of the window.", "overlap of the window with [first reading, last reading]")
    cpu_ns: int = member("Time in which some task waited for a core.", f"{THREADS}; `some` in /proc/pressure/cpu")
    io_ns: int = member("Time in which some task was blocked by a disk.", f"{THREADS}; `some` in /proc/pressure/io")


@described()
class CoreWaits:
    """Split of the wall time by the state of its threads. See `dlobd.measures.core_waits`."""

    whole: LaneTime = member("All of the wall time.")
    layers: tuple[LayerWaits, ...] = member("Each layer, and unattributed.")
    unknown: tuple[tuple[str, int], ...] = member(
        "[reason, ns] of the unknown part of the whole.",
        "segments without a thread, or outside its readings",
        unit="ns",
    )
    processes: tuple[ThreadUse, ...] = member("The run's processes whose threads were read.")
    pressure: tuple[Pressure, ...] = member("Stalls of the hosts' tasks.")
    foreign_cpu_ns: int | None = member(
        "CPU time of other jobs' processes; null if not all of the run's are visible, as on an external cluster.",
        "sum, over the stretches between two samples, of the machine's CPU time - that of the run's processes",
    )
    held_up_ns: int | None = member(
        "Wall time in which the run waited for cores that other processes used; null likewise.",
        "sum, over these stretches, of the run's waiting x the foreign share of the CPU time",
    )
    busy: bool | None = member(
        "True if held_up_ns exceeds 2 % of the wall time; comparisons leave such runs out by default."
    )


# ---- caches, imports


CacheState = Literal["cold", "partly", "warm"]

COLD, WARM = 0.5, 0.9
"""Files with less than half of their bytes in memory are cold; from nine tenths on they are warm. Two starts of one job
touch parts of its environment that differ by a few percent, so that no start finds all of it."""


def cache_state(share: float) -> CacheState:
    """Return the state of files with this share of their bytes in memory."""
    return "cold" if share < COLD else "warm" if share >= WARM else "partly"


@described()
class PageCache:
    """State of the training files in the page cache when the window began; in HDFS, of their blocks."""

    asked: str = member("as-is, warm or cold.")
    resident_bytes: int = member("Bytes in memory when the window began.", "resident pages x page size; mincore")
    total_bytes: int = member("Size of the files; in HDFS, of all replicas.", "sum of their sizes")
    before_resident_bytes: int = member("Bytes in memory before they were read or dropped.", "as `resident_bytes`")

    @property
    def state(self) -> CacheState | None:
        """State of the training files; None without files."""
        return cache_state(self.resident_bytes / self.total_bytes) if self.total_bytes else None


@described()
class EnvironmentPart:
    """Some files of a job's environment in the page cache, before the job and after it."""

    part: str = member("TensorFlow's libraries, Java's classes or Spark's jars.")
    state: CacheState | None = member("null: not used, or the kernel does not report it.")
    total_bytes: int | None = member("Size of its files.", "sum of their sizes")
    before_bytes: int | None = member("Bytes in memory just before the window.", "as `page_cache.resident_bytes`")
    after_bytes: int | None = member("Bytes in memory after the job, which it needed.", "the same after the job")

    @property
    def share(self) -> float | None:
        """Share of the needed bytes that was in memory before."""
        return self.there_bytes / self.after_bytes if self.there_bytes is not None and self.after_bytes else None

    @property
    def there_bytes(self) -> int | None:
        """Needed bytes that were in memory before; None where they are not known."""
        if self.before_bytes is None or self.after_bytes is None:
            return None
        return min(self.before_bytes, self.after_bytes)


@described()
class EnvironmentCache:
    """State of a run's environment in the page cache at its start. See `dlobd.measures.environment_cache`."""

    state: CacheState | None = member("State of the coldest part.")
    parts: tuple[EnvironmentPart, ...] = member("Parts of the environment.")

    @property
    def share(self) -> float | None:
        """Smallest cached share among the parts; None if no share is known."""
        known = [part.share for part in self.parts if part.state and part.share is not None]
        return min(known, default=None)


@described()
class Import:
    """Import of a Python package, of a millisecond or more."""

    role: str = member("The process's role.")
    index: int = member("Index within its role.", "own mark")
    pid: int = member("Process ID.", "own mark")
    package: str = member("First name of the package.")
    by: str = member("The package that imported it; empty: the program itself.")
    ns: int = member("Time of the import, with nested imports.", "sum of its instants `package imported`")
    own_ns: int = member("Time without nested imports.", "`ns` - time of other packages that it imported meanwhile")


# ---- Spark's own metrics


@described()
class StageMetrics:
    """One attempt of a Spark stage."""

    stage: int = member("Spark's stage ID.", "Spark's event log")
    attempt: int = member("Its attempt.", "Spark's event log")
    call: str | None = member("The call that made the stage; null if its end was not logged.")
    skew_ns: int = member(
        "Time by which its slowest task exceeded its median task.",
        "longest - median `Finish Time` - `Launch Time` of its tasks",
    )
    metrics: Mapping[str, int] = member("As `spark_metrics.metrics`.", "sums over the stage's tasks", unit="as there")


@described()
class SparkMetrics:
    """Spark's metrics of its tasks, in sparkMeasure's names and units. See `dlobd.measures.spark_metrics`."""

    metrics: Mapping[str, int] = member("Sums over all stages; see below.", "sums over the stages", unit="as below")
    failed_tasks: int = member("Ended tasks that failed or were killed.", "ended with a reason other than `Success`")
    skew_ns: int = member(
        "Time by which the slowest tasks exceeded the median tasks of their stages.", "sum of `stages[].skew_ns`"
    )
    stages: tuple[StageMetrics, ...] = member("Attempts of stages.")
