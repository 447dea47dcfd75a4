"""Computes a run's resource use by layer and by process, from samples of dlobd's machine. Pure.

Each figure is the growth of a counter in a time interval; between two samples the counter is linear. The intervals of a
layer are its segments of the attributed wall time, so that layers sum to the machine's figure exactly. Concurrent work
of other lanes is included: a figure is the load of the machine during the wall time of the layer.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dlobd.attribution.trace import SEGMENT_LAYERS, Segments
from dlobd.columns import Ints
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import Counter, HostSample, SampledHost, SampledProcess
from dlobd.record.resources import GpuUse, HostUse, LayerUse, ProcessUse, ResourceUse

OTHER = "other"
"""The role of an unidentified process, such as a shell."""

IO = ("disk_read_bytes", "disk_written_bytes", "loopback_bytes", "net_received_bytes", "net_sent_bytes")
_COUNTERS = ("cpu_busy_ns", *IO)
_MAIN_CLASSES = {
    "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend": "executor",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend": "executor",
    "org.apache.spark.deploy.yarn.ApplicationMaster": "application-master",
    "org.apache.spark.deploy.yarn.ExecutorLauncher": "application-master",
    "org.apache.spark.deploy.master.Master": "spark-master",
    "org.apache.spark.deploy.worker.Worker": "spark-worker",
}

Window = tuple[int, int]
_Counters = Mapping[str, Counter | None]


def resource_use(evidence: Evidence, segments: Segments, window: Window) -> ResourceUse | None:
    """Return the member `resources` of run.json; None for a run without samples in its window."""
    found = evidence.resources
    if found is None or not _sampled(found, *window):
        return None
    counters = {name: _counter(found, name) for name in _COUNTERS}
    gpus = [_gpu_busy(found, index) for index in range(len(found.gpus))]
    times = [sample.at_ns for sample in found.samples]
    cost = Counter((sample.at_ns, sample.cost_ns) for sample in found.samples)
    layers = [segments.where(segments.layer == layer) for layer in np.unique(segments.layer).tolist()]
    return ResourceUse(
        period_ns=found.period_ns,
        samples=sum(window[0] <= at_ns <= window[1] for at_ns in times),
        longest_gap_ns=max((after - before for before, after in pairwise(times)), default=0),
        cost_ns=cost.between(*window),
        hosts=(_host(found, counters, window),),
        processes=_processes(evidence, found, window),
        layers=tuple(_layer(found, counters, gpus, layer) for layer in layers),
        gpus=tuple(_gpu(found, index, busy, window) for index, busy in enumerate(gpus)),
    )


def _counter(found: SampledHost, name: str) -> Counter | None:
    """Return a counter of the host; None if any sample lacks it."""
    readings = [(sample.at_ns, getattr(sample, name)) for sample in found.samples]
    return Counter(readings) if all(value is not None for _, value in readings) else None


def _sampled(found: SampledHost, start_ns: Ints | int, end_ns: Ints | int) -> int:
    """Return the part of intervals between the first and the last sample."""
    first_ns, last_ns = found.samples[0].at_ns, found.samples[-1].at_ns
    return int(np.maximum(0, np.minimum(end_ns, last_ns) - np.maximum(start_ns, first_ns)).sum())


def _growth(counters: _Counters, start_ns: Ints, end_ns: Ints) -> dict[str, Any]:
    """Return the growth of each counter; None for a counter that a sample lacks."""
    return {name: counter.grown(start_ns, end_ns) if counter else None for name, counter in counters.items()}


def _host(found: SampledHost, counters: _Counters, window: Window) -> HostUse:
    stolen = Counter((sample.at_ns, sample.cpu_stolen_ns) for sample in found.samples)
    grown = _growth(counters, *(np.array([at_ns]) for at_ns in window))
    return HostUse(
        host=found.host,
        machine=found.machine,
        cores=found.cores,
        memory_bytes=found.memory_bytes,
        sampled_ns=_sampled(found, *window),
        cpu_stolen_ns=stolen.between(*window),
        processes_cpu_ns=sum(_cpu(process).between(*window) for process in found.processes),
        unseen_cpu_ns=_unseen_ns(found),
        memory_used_peak_bytes=max(sample.memory_bytes for sample in _within(found, window)),
        **grown,
    )


def _within(found: SampledHost, window: Window) -> list[HostSample]:
    """Return the samples of a window; the nearest sample if the window has none."""
    inside = [sample for sample in found.samples if window[0] <= sample.at_ns <= window[1]]
    return inside or [min(found.samples, key=lambda sample: abs(sample.at_ns - window[0]))]


def _layer(found: SampledHost, counters: _Counters, gpus: Sequence[Counter], segments: Segments) -> LayerUse:
    start_ns, end_ns = segments.start_ns, segments.end_ns
    sampled_ns = _sampled(found, start_ns, end_ns)
    grown = _growth(counters, start_ns, end_ns) if sampled_ns else dict.fromkeys(counters)
    cpu_busy_ns = grown["cpu_busy_ns"]
    gpu_busy_ns = sum(gpu.grown(start_ns, end_ns) for gpu in gpus)
    return LayerUse(
        layer=SEGMENT_LAYERS[segments.layer[0]],
        ns=int((end_ns - start_ns).sum()),
        sampled_ns=sampled_ns,
        cpu_busy_share=cpu_busy_ns / (sampled_ns * found.cores) if cpu_busy_ns is not None else None,
        gpu_busy_share=gpu_busy_ns / (sampled_ns * len(gpus)) if sampled_ns and gpus else None,
        **grown,
    )


def _cpu(process: SampledProcess) -> Counter:
    return _history(process, "cpu_ns") or Counter([])


def _history(process: SampledProcess, name: str) -> Counter | None:
    """Return a counter of a process, from 0 at its start; None if it is unknown."""
    readings = [(sample.at_ns, value) for sample in process.samples if (value := getattr(sample, name)) is not None]
    if readings and process.start_ns is not None and process.start_ns < readings[0][0]:
        readings.insert(0, (process.start_ns, 0))
    return Counter(readings) if readings else None


def _unseen_ns(found: SampledHost) -> int:
    """Return the CPU time of ended children that no sample contains; the kernel adds it to the waiting parent."""
    last_ns = found.samples[-1].at_ns
    sampled = [process for process in found.processes if process.samples]
    ended: dict[int, list[SampledProcess]] = defaultdict(list)
    for process in sampled:
        if process.samples[-1].at_ns < last_ns:
            ended[process.parent].append(process)

    def seen_below_ns(process: SampledProcess) -> int:
        """Return the sampled CPU time of the ended children of a process."""
        return sum(
            child.samples[-1].cpu_ns + max(child.samples[-1].reaped_ns, seen_below_ns(child))
            for child in ended[process.pid]
        )

    reaped = ((process, process.samples[-1].reaped_ns - process.samples[0].reaped_ns) for process in sampled)
    return sum(max(0, reaped_ns - seen_below_ns(process)) for process, reaped_ns in reaped)


def _processes(evidence: Evidence, found: SampledHost, window: Window) -> tuple[ProcessUse, ...]:
    rows: list[ProcessUse] = []
    others: dict[str, list[ProcessUse]] = defaultdict(list)
    for process, role, index in with_roles(evidence, found):
        if process.samples and process.samples[-1].at_ns >= window[0]:
            row = _process(process, role, index, window)
            (others[process.name] if role == OTHER else rows).append(row)
    rows.sort(key=lambda row: (row.role, row.index, row.pid or 0))
    return (*rows, *(_added_up(alike) for _, alike in sorted(others.items())))


def _process(process: SampledProcess, role: str, index: int, window: Window) -> ProcessUse:
    read, written = _history(process, "read_bytes"), _history(process, "write_bytes")
    return ProcessUse(
        role=role,
        index=index,
        pid=process.pid,
        name=process.name,
        count=1,
        cpu_ns=_cpu(process).between(*window),
        rss_peak_bytes=max(sample.rss_bytes for sample in process.samples),
        read_bytes=read.between(*window) if read else None,
        write_bytes=written.between(*window) if written else None,
    )


def _added_up(rows: Sequence[ProcessUse]) -> ProcessUse:

    def total(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return replace(
        rows[0],
        pid=None,
        count=len(rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        rss_peak_bytes=max(row.rss_peak_bytes for row in rows),
        read_bytes=total(row.read_bytes for row in rows),
        write_bytes=total(row.write_bytes for row in rows),
    )


def with_roles(evidence: Evidence, found: SampledHost) -> Iterator[tuple[SampledProcess, str, int]]:
    """Yield the processes with their roles and indices."""
    roles: dict[int, tuple[str, int]] = {}
    for name, pid in found.roots.items():
        role, _, index = name.rpartition("-")  # such as datanode-1
        roles[pid] = (role, int(index)) if role and index.isdecimal() else (name, 0)
    roles[evidence.window["pid"]] = (evidence.topology.launched_role, 0)
    for recorded in evidence.all_processes:
        if recorded.domain == found.domain:
            roles[recorded.process.pid] = (recorded.process.role, recorded.process.index)
    for process in found.processes:
        by_program, executor = _MAIN_CLASSES.get(process.main_class or "", OTHER), process.executor or ""
        number = int(executor) if by_program != OTHER and executor.isdecimal() else 0
        yield process, *roles.get(process.pid, (by_program, number))


def _gpu_busy(found: SampledHost, index: int) -> Counter:
    """Return the busy time of a GPU: its driver reports a percentage, which is applied to the time since the last
    sample."""
    total_ns, readings = 0, [(found.samples[0].at_ns, 0)]
    for before, after in pairwise(found.samples):
        if gpu := after.gpus[index]:
            total_ns += gpu[0] * (after.at_ns - before.at_ns) // 100
        readings.append((after.at_ns, total_ns))
    return Counter(readings)


def _gpu(found: SampledHost, index: int, busy: Counter, window: Window) -> GpuUse:
    readings = [gpu for sample in _within(found, window) if (gpu := sample.gpus[index])]
    sampled_ns = _sampled(found, *window)
    return GpuUse(
        index=index,
        name=found.gpus[index]["name"],
        memory_bytes=found.gpus[index]["memory_bytes"],
        busy_share=busy.between(*window) / sampled_ns if readings and sampled_ns else None,
        memory_used_peak_bytes=max((memory for _, memory in readings), default=None),
    )
