"""Reads the files of `dlobd.run.resource_sampler` into counters over time. A file may be truncated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dlobd.bundle import reading
from dlobd.bundle.reading import Members
from dlobd.columns import Ints, ints, scaled
from dlobd.spans import JsonMap

LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class HostSample:
    """Counters of one machine at `at_ns`, as totals since its boot; None for an unknown counter."""

    at_ns: int
    cpu_busy_ns: int
    cpu_stolen_ns: int
    memory_bytes: int  # in use
    disk_read_bytes: int | None
    disk_written_bytes: int | None
    received_bytes: Mapping[str, int]  # by interface, loopback included
    net_sent_bytes: int
    gpus: tuple[tuple[int, int] | None, ...]  # load in percent and memory in use
    cost_ns: int  # CPU time of the sampler
    pressure: tuple[int, int] | None = None  # nanoseconds in which some task waited for a core, and for a disk

    @property
    def loopback_bytes(self) -> int | None:
        """The bytes that the host sent to itself, counted once."""
        return self.received_bytes.get(LOOPBACK)

    @property
    def net_received_bytes(self) -> int:
        """The bytes received from other hosts."""
        return sum(received for name, received in self.received_bytes.items() if name != LOOPBACK)


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Counters of one process: `rss_bytes` at `at_ns`, and totals until `at_ns`; see `dlobd.tracing.process_use`."""

    at_ns: int
    cpu_ns: int
    reaped_ns: int  # CPU time of ended children that it has waited for
    rss_bytes: int
    read_bytes: int | None
    write_bytes: int | None
    later_ns: int | None = None  # delay of the thread readings after `at_ns`; None if no threads were read
    lane_on_core_ns: int | None = None
    lane_waiting_ns: int | None = None
    threads_on_core_ns: int | None = None
    threads_waiting_ns: int | None = None
    threads_cpu_ns: int | None = None  # ended threads included
    major_faults: int | None = None
    block_io_ns: int | None = None


@dataclass(slots=True)
class SampledProcess:
    """One process with the last description that the sampler read."""

    pid: int
    parent: int
    start_ns: int | None
    name: str
    main_class: str | None
    executor: str | None
    samples: list[ProcessSample] = field(default_factory=list)


@dataclass(slots=True)
class SampledHost:
    """The records of one sampler. `roots` maps dlobd's names to PIDs; `gpus` have `name` and `memory_bytes`."""

    host: str
    domain: str
    machine: str
    cores: int
    memory_bytes: int
    period_ns: int
    roots: dict[str, int]
    gpus: list[JsonMap]
    samples: list[HostSample] = field(default_factory=list)
    processes: list[SampledProcess] = field(default_factory=list)
    damaged_lines: int = 0


class Counter:
    """A counter, interpolated between its readings. A lower reading means that the counter restarted from 0."""

    def __init__(self, readings: Iterable[tuple[int, int]]) -> None:
        times_ns, values = [], []
        before = total = 0
        for at_ns, value in readings:
            total += value - before if value >= before else value
            before = value
            times_ns.append(at_ns)
            values.append(total)
        self._times_ns, self._values = ints(times_ns), ints(values)

    def grown(self, start_ns: Ints, end_ns: Ints) -> int:
        """Return the sum of the growths in intervals."""
        return int((self.values(end_ns) - self.values(start_ns)).sum())

    def values(self, at_ns: Ints) -> Ints:
        """Return the value at each time; 0 if it was never read."""
        times_ns, values = self._times_ns, self._values
        if not len(times_ns):
            return np.zeros_like(at_ns)
        before = np.maximum(0, np.searchsorted(times_ns, at_ns, "right") - 1)
        after = np.minimum(before + 1, len(times_ns) - 1)
        length_ns = np.maximum(1, times_ns[after] - times_ns[before])
        passed_ns = np.clip(at_ns - times_ns[before], 0, length_ns)
        return values[before] + scaled(values[after] - values[before], passed_ns, length_ns)

    def between(self, start_ns: int, end_ns: int) -> int:
        """Return the growth in an interval. The growths of adjacent intervals sum exactly to that of their union."""
        return self.grown(np.array([start_ns]), np.array([end_ns]))


def read(lines: Iterable[str]) -> SampledHost | None:
    """Read the lines of a sampler; None without a sample. Counts truncated and malformed lines."""
    host: SampledHost | None = None
    open_processes: dict[int, SampledProcess] = {}
    damaged_lines = 0
    for text in lines:
        line = reading.parse_json(text, JsonMap)
        shape = None if isinstance(line, reading.Damaged) else LINES.get(str(line.get("k")))
        if isinstance(line, reading.Damaged) or shape is None or reading.mismatch(line, shape):
            damaged_lines += 1
        elif line["k"] == "host":
            names = ("host", "domain", "machine", "cores", "memory_bytes", "period_ns")
            roots = {**line["roots"], "sampler": line["sampler"]}
            host = SampledHost(**{name: line[name] for name in names}, roots=roots, gpus=line["gpus"])
        elif host and line["k"] == "process":
            _describe(host, line, open_processes)
        elif host and line["k"] == "sample" and not _sample(host, line, open_processes):
            damaged_lines += 1
    if host is None or not host.samples:
        return None
    host.damaged_lines = damaged_lines
    return host


def _describe(found: SampledHost, line: JsonMap, known: dict[int, SampledProcess]) -> None:
    """Add a process, or update its description after an exec. A known PID with another start is a new process."""
    names = ("pid", "parent", "start_ns", "name", "main_class", "executor")
    process = SampledProcess(*(line[name] for name in names))
    before = known.get(process.pid)
    if before and before.start_ns == process.start_ns:
        before.name, before.main_class, before.executor = process.name, process.main_class, process.executor
        return
    known[process.pid] = process
    found.processes.append(process)


def _sample(host: SampledHost, line: JsonMap, known: Mapping[int, SampledProcess]) -> bool:
    """Add the readings of one point in time; return False for a damaged line."""
    at_ns, net, disk = line["t"], line["net"], line["disk"]
    readings = {pid: counters for pid, counters in line["p"].items() if pid.isdecimal()}
    # fields of `ProcessSample`, with user and system time instead of `at_ns` and `cpu_ns`; the first four are known
    most = len(fields(ProcessSample))
    whole = all(6 <= len(counters) <= most and None not in counters[:4] for counters in readings.values())
    if len(readings) < len(line["p"]) or not whole or len(line["gpu"]) != len(host.gpus):
        return False
    host.samples.append(
        HostSample(
            at_ns,
            cpu_busy_ns=line["cpu"][0],
            cpu_stolen_ns=line["cpu"][2],
            memory_bytes=line["memory"],
            disk_read_bytes=disk[0] if disk else None,
            disk_written_bytes=disk[1] if disk else None,
            received_bytes={name: received for name, (received, _) in net.items()},
            net_sent_bytes=sum(sent for name, (_, sent) in net.items() if name != LOOPBACK),
            gpus=tuple(tuple(gpu) if gpu else None for gpu in line["gpu"]),
            cost_ns=line["cost"],
            pressure=tuple(line["pressure"]) if line.get("pressure") else None,
        )
    )
    for pid, (user_ns, system_ns, *more) in readings.items():
        if process := known.get(int(pid)):
            process.samples.append(ProcessSample(at_ns, user_ns + system_ns, *more))
    return True


_PAIR = tuple[int, int] | None


def _all(kind: object, names: str) -> dict[str, object]:
    return dict.fromkeys(names.split(), kind)


_GPU: Any = Members({"name": str, "memory_bytes": int})

LINES: dict[str, Members] = {
    "host": Members(
        _all(str, "host domain machine")
        | _all(int, "cores memory_bytes period_ns sampler")
        | {"roots": dict[str, int], "gpus": list[_GPU]}
    ),
    "process": Members(
        {"name": str, "start_ns": int | None, **_all(int, "pid parent"), **_all(str | None, "main_class executor")}
    ),
    "sample": Members(
        {"disk": _PAIR, "gpu": list[_PAIR], "p": dict[str, list[int | None]], **_all(int, "t memory cost")}
        | {"cpu": tuple[int, int, int], "net": dict[str, tuple[int, int]]},
        {"pressure": _PAIR},
    ),
}
"""Kind of a line -> the JSON shape of its members."""
