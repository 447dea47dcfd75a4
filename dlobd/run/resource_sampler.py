"""Samples the resource use of this machine and the job's processes: CPU, memory, disk, network and GPUs.

It runs as a separate process, so that it does not slow down the measured processes or dlobd:
`python -m dlobd.run.resource_sampler FILE ASSIGNMENT`. It appends lines to a file of evidence without buffering:

    host      once: the sampled processes and the columns of the samples
    process   for each new process, and again after it has executed another program
    sample    counters since the start of the machine or process, all read at the same time

`dlobd.evidence.resources` reads them. Command lines are never written, because they may contain secrets.
"""

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
from types import ModuleType

import psutil

from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.paths import python_path
from dlobd.tracing import clock, process_use

PERIOD_NS = 500_000_000
"""Period of sampling. A sample of a run on the embedded cluster takes 4 to 5 ms of CPU: 1 % of a core."""
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 5.0

_THREAD_COLUMNS = """later_ns lane_on_core_ns lane_waiting_ns threads_on_core_ns threads_waiting_ns threads_cpu_ns
major_faults block_io_ns"""
THREAD_COLUMNS = tuple(_THREAD_COLUMNS.split())
PROCESS_COLUMNS = ("user_ns", "system_ns", "reaped_ns", "rss_bytes", "read_bytes", "write_bytes", *THREAD_COLUMNS)
"""Columns of a process. `reaped_ns` is the CPU time of ended descendants. The columns of threads
(`dlobd.tracing.process_use`) were read `later_ns` after the start of the sample. Roots of the assignment do not have
the columns of threads, because daemons and dlobd have no lanes."""
CPU_COLUMNS = ("busy_ns", "idle_ns", "stolen_ns")
"""Columns of the machine, for all cores: `idle_ns` includes waiting for disks; `stolen_ns` is steal time."""

_MAIN_CLASS = re.compile(r"[a-z]\w*(\.\w+)*\.[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Processes to sample: all descendants of the named `roots`. `machine` describes the role of this host.

    The sampler ends after `deadline_s` in any case.
    """

    roots: Mapping[str, int]
    machine: str
    deadline_s: float
    period_ns: int = PERIOD_NS


# ---- in dlobd's process


@contextmanager
def sampling(path: Path, assignment: Assignment) -> Iterator[list[str]]:
    """Sample into `path` from before the context until its end. Yields a list; if sampling fails, it contains the
    reason after the context."""
    failed: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(path), json.dumps(asdict(assignment))],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach only dlobd, which stops the sampler
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
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
    return bool(readable and process.stdout.read(1))


def _end(process: subprocess.Popen[bytes]) -> str:
    """Stop the sampler, after its last sample; return the last line of its stderr."""
    process.terminate()
    try:
        _, errors = process.communicate(timeout=STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()  # the sampler has no children that could keep its output open
    except ValueError:
        return ""  # the sampler has ended already
    return (errors.decode(errors="replace").strip().splitlines() or ["no error message"])[-1]


# ---- in the sampler


class ProcessTree:
    """The current descendants of some roots, including orphans."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = frozenset(roots.values())
        self._members: dict[int, psutil.Process] = {}
        self._others: set[int] = set()

    def processes(self) -> list[psutil.Process]:
        """Return the current processes. Reads the parent of each process of the machine once."""
        pids = set(psutil.pids())
        self._others &= pids
        self._members = {pid: process for pid, process in self._members.items() if pid in pids}
        new: dict[int, tuple[psutil.Process, int]] = {}
        for pid in pids - self._members.keys() - self._others:
            try:
                process = psutil.Process(pid)
                new[pid] = process, process.ppid()
            except psutil.Error:
                continue  # the process has ended
        while found := [pid for pid, (_, parent) in new.items() if pid in self._roots or parent in self._members]:
            for pid in found:
                self._members[pid] = new.pop(pid)[0]
        self._others |= new.keys()
        return list(self._members.values())


class Sampler:
    """Reader of all counters of an assignment. `write` receives each line as a dictionary."""

    def __init__(self, assignment: Assignment, write: Callable[[Mapping[str, object]], object]) -> None:
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
        """Write a line per new process, and a sample."""
        at_ns = clock.monotonic_ns()
        line: dict[str, object] = {"k": "sample", "t": at_ns, "cpu": _cpu()}
        memory = psutil.virtual_memory()
        line["memory"] = memory.total - memory.available
        line["disk"] = self._disk()
        networks = psutil.net_io_counters(pernic=True).items()
        line["net"] = {name: [net.bytes_recv, net.bytes_sent] for name, net in networks if name in self._interfaces}
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

    def _process(self, process: psutil.Process, begun_ns: int) -> list[int | None] | None:
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


def _described(process: psutil.Process, name: str) -> dict[str, object]:
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
    """Return the bytes that a process read from and wrote to disks; readable for its owner and root only."""
    try:
        counters = process.io_counters()
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return [None, None]
    return [counters.read_bytes, counters.write_bytes]


def _cpu() -> list[int]:
    times = psutil.cpu_times()
    # user and nice include guest time
    busy_s = times.user + times.nice + times.system + times.irq + times.softirq
    return [_ns(busy_s), _ns(times.idle + times.iowait), _ns(times.steal)]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _interfaces() -> set[str]:
    """Return loopback and interfaces with hardware, because bridges and tunnels carry the same bytes again.

    A container has no hardware, so all of its interfaces are returned.
    """
    every = set(psutil.net_io_counters(pernic=True))
    hardware = {name for name in every if _is_hardware("class/net", name)}
    return {"lo"} | (hardware or every)


def _is_hardware(kind: str, name: str) -> bool:
    return Path(f"/sys/{kind}/{name}/device").exists()


class _Gpu:
    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))
        self.memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    def sample(self) -> list[int] | None:
        """Return the utilisation in percent during NVML's last period, and the used bytes; None if unknown."""
        try:
            busy = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
            return [busy, self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used]
        except self._nvml.NVMLError:
            return None


def _gpus() -> list[_Gpu]:
    """Return the GPUs of this machine; empty if there is no NVIDIA driver."""
    import pynvml  # imported only in this process, because it loads the driver's library

    try:
        pynvml.nvmlInit()
        return [_Gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def main() -> None:
    """Sample once per period until SIGTERM, and then once more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    path, assignment = Path(sys.argv[1]), Assignment(**json.loads(sys.argv[2]))
    with path.open("a", buffering=1) as file:  # line buffered
        sampler = Sampler(assignment, lambda line: file.write(json.dumps(line, separators=(",", ":")) + "\n"))
        begin_ns = clock.monotonic_ns()
        sampler.sample()
        sys.stdout.write("\n")
        sys.stdout.close()
        while (now_ns := clock.monotonic_ns()) - begin_ns < assignment.deadline_s * 1e9:
            # a missed sample is not repeated
            wait_ns = assignment.period_ns - (now_ns - begin_ns) % assignment.period_ns
            stopped = signal.sigtimedwait({signal.SIGTERM}, wait_ns / 1e9)
            sampler.sample()
            if stopped:
                break


if __name__ == "__main__":
    main()
