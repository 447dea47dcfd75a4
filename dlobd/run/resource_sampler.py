"""Samples what this machine and the job's processes use: CPU, memory, disk, network and GPUs.

Runs as a process of its own, so that neither the measured processes nor dlobd's own Python pay for it:
`python -m dlobd.run.resource_sampler FILE ASSIGNMENT`. It appends lines to a file of evidence, which it writes at once:

    host      once: what is sampled, and the columns of the samples
    process   when a process is first seen, and again when it has become another program
    sample    counters since the machine or the process was started, read at one time

`dlobd.attribution.importers.resources` reads them. A command line is never written: it may hold secrets.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import psutil

from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.paths import python_path
from dlobd.tracing import clock, process_use

PERIOD_NS = 500_000_000
"""A sample of a run on the embedded cluster takes 4 to 5 ms of CPU: 1 % of one core at this period."""
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 5.0

THREAD_COLUMNS = (
    "later_ns", "lane_on_core_ns", "lane_waiting_ns", "threads_on_core_ns", "threads_waiting_ns", "threads_cpu_ns",
    "major_faults", "block_io_ns",
)  # fmt: skip
PROCESS_COLUMNS = ("user_ns", "system_ns", "reaped_ns", "rss_bytes", "read_bytes", "write_bytes", *THREAD_COLUMNS)
"""Of a process. `reaped_ns` is the CPU time of the ended processes that it has waited for, and of theirs. The columns
of threads (`dlobd.tracing.process_use`) were read `later_ns` after the sample began; a root of the assignment does not
have them, as no lane is a daemon's or dlobd's."""
CPU_COLUMNS = ("busy_ns", "idle_ns", "stolen_ns")
"""Of the machine, all cores together: `idle_ns` includes waiting for disks, and the hypervisor took `stolen_ns`."""

_MAIN_CLASS = re.compile(r"[a-z]\w*(\.\w+)*\.[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to sample. All processes below `roots`, by their names; `machine` says in words what the host is of a run.

    The sampler ends after `deadline_s`, whatever else fails.
    """

    roots: Mapping[str, int]
    machine: str
    deadline_s: float
    period_ns: int = PERIOD_NS


# ---- in dlobd's own process


@contextmanager
def sampling(path: Path, assignment: Assignment) -> Iterator[list[str]]:
    """Samples into `path` for as long as the context lasts.

    The first sample is taken before the context begins, and the last one when it ends. Yields a list that has, after
    the context, a line that says why if it could not.
    """
    failed: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(path), json.dumps(asdict(assignment))],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for dlobd, which stops it
        preexec_fn=lambda: die_with_parent(signal.SIGKILL),
    )
    try:
        if not _ready(process):
            failed.append(f"resource use: the sampler did not start: {_end(process)}")
        yield failed
    finally:
        early = process.poll() is not None
        why = _end(process)
        if early and not failed:
            failed.append(f"resource use: the sampler ended before the job did: {why}")


def _ready(process: subprocess.Popen[bytes]) -> bool:
    """Waits for the first sample."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
    return bool(readable and process.stdout.read(1))


def _end(process: subprocess.Popen[bytes]) -> str:
    """Stops the sampler, after its last sample; returns the last line of its stderr."""
    process.terminate()
    try:
        _, errors = process.communicate(timeout=STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()  # it starts nothing that could hold its output open
    except ValueError:
        return ""  # it was ended before
    return (errors.decode(errors="replace").strip().splitlines() or ["no error message"])[-1]


# ---- in the sampler


class ProcessTree:
    """The processes below some roots, as they come and go. One that is orphaned stays in it."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = frozenset(roots.values())
        self._members: dict[int, psutil.Process] = {}
        self._others: set[int] = set()

    def processes(self) -> list[psutil.Process]:
        """Those that are there now. Each process of the machine is asked for its parent once."""
        pids = set(psutil.pids())
        self._others &= pids
        self._members = {pid: process for pid, process in self._members.items() if pid in pids}
        new: dict[int, tuple[psutil.Process, int]] = {}
        for pid in pids - self._members.keys() - self._others:
            try:
                process = psutil.Process(pid)
                new[pid] = process, process.ppid()
            except psutil.Error:
                continue  # it has ended since
        while found := [pid for pid, (_, parent) in new.items() if pid in self._roots or parent in self._members]:
            for pid in found:
                self._members[pid] = new.pop(pid)[0]
        self._others |= new.keys()
        return list(self._members.values())


class Sampler:
    """Reads all counters of an assignment.

    Args:
        write: gets each line, as a dictionary.
    """

    def __init__(self, assignment: Assignment, write: Callable[[dict[str, Any]], object]) -> None:
        self._write = write
        self._tree = ProcessTree({**assignment.roots, "sampler": os.getpid()})
        self._programs: dict[psutil.Process, str] = {}
        self._unwatched = {*assignment.roots.values(), os.getpid()}
        self._threads: dict[psutil.Process, process_use.Threads] = {}
        self._interfaces = _interfaces()
        self._disks = [name for name in psutil.disk_io_counters(perdisk=True) or {} if _is_hardware("block", name)]
        self._gpus = _gpus()
        write(
            {
                "k": "host",
                "host": socket.gethostname(),
                "domain": clock.domain(),
                "machine": assignment.machine,
                "cores": psutil.cpu_count(),
                "memory_bytes": psutil.virtual_memory().total,
                "period_ns": assignment.period_ns,
                "roots": dict(assignment.roots),
                "sampler": os.getpid(),
                "disks": self._disks,
                "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in self._gpus],
                "columns": {"cpu": CPU_COLUMNS, "p": PROCESS_COLUMNS},
            }
        )

    def sample(self) -> None:
        """Writes one sample, and before it the processes that are new."""
        at_ns = clock.monotonic_ns()
        line: dict[str, Any] = {"k": "sample", "t": at_ns, "cpu": _cpu()}
        memory = psutil.virtual_memory()
        line["memory"] = memory.total - memory.available
        line["disk"] = self._disk()
        line["net"] = {name: [net.bytes_recv, net.bytes_sent] for name, net in self._net()}
        line["gpu"] = [gpu.sample() for gpu in self._gpus]
        line["pressure"] = process_use.pressure()
        processes = self._tree.processes()
        line["p"] = {process.pid: found for process in processes if (found := self._process(process, at_ns))}
        line["cost"] = time.process_time_ns()
        self._write(line)

    def _disk(self) -> list[int] | None:
        if not self._disks:
            return None
        counters = psutil.disk_io_counters(perdisk=True) or {}
        found = [counters[name] for name in self._disks if name in counters]
        return [sum(disk.read_bytes for disk in found), sum(disk.write_bytes for disk in found)]

    def _net(self) -> Iterator[tuple[str, Any]]:
        return ((name, net) for name, net in psutil.net_io_counters(pernic=True).items() if name in self._interfaces)

    def _process(self, process: psutil.Process, begun_ns: int) -> list[int | None] | None:
        """Its counters; None if it has ended."""
        try:
            with process.oneshot():
                if self._programs.get(process) != (name := process.name()):
                    self._write(_described(process, name))
                    self._programs[process] = name
                    self._threads[process] = process_use.Threads(process.pid, java=name == "java")
                times, rss = process.cpu_times(), process.memory_info().rss
                reaped_s = times.children_user + times.children_system
                counters = [_ns(times.user), _ns(times.system), _ns(reaped_s), rss, *_io(process)]
        except psutil.Error:
            return None
        return counters if process.pid in self._unwatched else [*counters, *self._of_threads(process, begun_ns)]

    def _of_threads(self, process: psutil.Process, begun_ns: int) -> list[int | None]:
        later_ns = clock.monotonic_ns() - begun_ns
        times = self._threads[process].read()
        faults = process_use.faults(process.pid) or (None, None)
        lengths: tuple[int | None, ...] = astuple(times) if times else (None,) * 4
        return [later_ns, *lengths, process_use.cpu_ns(process.pid), *faults]


def _described(process: psutil.Process, name: str) -> dict[str, Any]:
    words = process.cmdline()
    executor = words[words.index("--executor-id") + 1] if "--executor-id" in words[:-1] else None
    return {
        "k": "process",
        "pid": process.pid,
        "parent": process.ppid(),
        "start_ns": clock.process_start_ns(process.pid),
        "name": name,
        "main_class": next((word for word in words if _MAIN_CLASS.fullmatch(word)), None) if name == "java" else None,
        "executor": executor,
    }


def _io(process: psutil.Process) -> list[int | None]:
    """Bytes that it had disks read and write; the kernel tells its owner and root alone."""
    try:
        counters = process.io_counters()
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return [None, None]
    return [counters.read_bytes, counters.write_bytes]


def _cpu() -> list[int]:
    times = psutil.cpu_times()
    # what guests use is contained in user and nice
    busy_s = times.user + times.nice + times.system + times.irq + times.softirq
    return [_ns(busy_s), _ns(times.idle + times.iowait), _ns(times.steal)]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _interfaces() -> set[str]:
    """Loopback, and those with hardware: bridges and tunnels carry the same bytes again. In a container, which has
    none with hardware, all."""
    every = set(psutil.net_io_counters(pernic=True))
    hardware = {name for name in every if _is_hardware("class/net", name)}
    return {"lo"} | (hardware or every)


def _is_hardware(kind: str, name: str) -> bool:
    return Path(f"/sys/{kind}/{name}/device").exists()


class _Gpu:
    """One GPU, by NVIDIA's management library."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))
        self.memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    def sample(self) -> list[int] | None:
        """Percent of the library's last period in which it was busy, and bytes in use; None if it does not say."""
        try:
            busy = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
            return [busy, self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used]
        except self._nvml.NVMLError:
            return None


def _gpus() -> list[_Gpu]:
    """Those of this machine; none without NVIDIA's driver."""
    import pynvml  # of this process alone: it loads the driver's library

    try:
        pynvml.nvmlInit()
        return [_Gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def main() -> None:
    """The process's life: a sample, then one a period until SIGTERM, and a last one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    path, assignment = Path(sys.argv[1]), Assignment(**json.loads(sys.argv[2]))
    with path.open("a", buffering=1) as file:  # a line is written as soon as it ends
        sampler = Sampler(assignment, lambda line: file.write(json.dumps(line, separators=(",", ":")) + "\n"))
        begin_ns = clock.monotonic_ns()
        sampler.sample()
        sys.stdout.write("\n")
        sys.stdout.close()
        while (now_ns := clock.monotonic_ns()) - begin_ns < assignment.deadline_s * 1e9:
            # a time that was missed is left out, not made up for
            wait_ns = assignment.period_ns - (now_ns - begin_ns) % assignment.period_ns
            stopped = signal.sigtimedwait({signal.SIGTERM}, wait_ns / 1e9)
            sampler.sample()
            if stopped:
                break


if __name__ == "__main__":
    main()
