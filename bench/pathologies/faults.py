"""Faults of the pathologies. A fault waits for its trigger and ends after a bounded time. It is undone also if the run
fails or this command is interrupted. Faults affect only processes of the benchmark's own cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dlobd import spans as kinds
from dlobd.faults import injection_log, queue_filler, sigstop, slow_disk
from dlobd.faults.injection_log import Injection
from dlobd.faults.observed_run import MARK_S, Fault, Moment, ObservedRun, Sign, Trigger, armed
from dlobd.faults.targets import daemons_of, fulfils, is_java
from dlobd.hadoop.embedded.processes import mentioning
from dlobd.process_id import ProcessId, identify
from dlobd.run import page_cache

Beside = Callable[[ObservedRun], AbstractContextManager[None]]
"""Fault, active while its context manager is open."""

RANKS = ("chief", "worker", "trainer")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Trigger: a rank has recorded the instant `passed`, but not yet the instant `but`."""

    passed: str
    but: str = ""
    chief: bool = True

    def seen(self, run: ObservedRun) -> Moment | None:
        """Return the first matching rank; include the chief only if `chief` is set."""
        ranks = _ranks(run, self.passed, self.but)
        return next((Moment(role, None, process) for role, process in ranks if self.chief or role != "chief"), None)


@dataclass(frozen=True, slots=True)
class FileAppears:
    """Trigger: a file exists."""

    path: Path

    def seen(self, run: ObservedRun) -> Moment | None:
        """Return the file if it exists, else None."""
        return Moment(self.path.name) if self.path.exists() else None


def _ranks(run: ObservedRun, passed: str, but: str = "") -> Iterator[tuple[str, ProcessId]]:
    """Yield role and process of each live rank that has recorded `passed`, but not `but`."""
    for path in run.container_files("container_*/spans-*.jsonl"):
        text = path.read_text(errors="replace")
        if passed not in text or (but and but in text):
            continue
        headers = [json.loads(line) for line in text.splitlines() if line.startswith('{"k":"process"')]
        if headers and headers[-1]["role"] in RANKS and (process := identify(headers[-1]["pid"])):
            yield headers[-1]["role"], process


def wait_for(run: ObservedRun, trigger: Sign) -> Moment | None:
    """Wait for a trigger; return None if the run ends first."""
    while (moment := trigger.seen(run)) is None:
        if run.over.wait(MARK_S):
            return None
    return moment


IMPORTS = Recorded("", kinds.TENSORFLOW_IMPORTED, chief=False)
"""Trigger: a trainer imports TensorFlow."""
IMPORTED = Recorded(kinds.TENSORFLOW_IMPORTED)
FIRST_STEP = Recorded(kinds.FIRST_STEP_DONE)
LAST_STEP = Recorded(kinds.LAST_STEP_DONE)
TRAINS = Recorded(kinds.FIRST_STEP_DONE, kinds.LAST_STEP_DONE, chief=False)

TRAINING_S = 600.0
"""Maximum duration of a disturbance of the training."""
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"
"""Program that keeps a core busy until its parent ends; the argument is the parent's PID."""


def at(name: str, trigger: Trigger, inject: Callable[[ObservedRun, Moment], None]) -> Beside:
    """Inject a fault after its trigger; end the fault with the context."""
    return lambda run: armed(run, [Fault(name, trigger, inject)])


# ---- stopped processes


def daemon_stopped(kind: str, seconds: float, trigger: Trigger) -> Beside:
    """Stop (SIGSTOP) the daemons of a kind; without a kind, the daemon with the trigger's line in its log."""
    name = f"{kind or 'daemon'} stopped"

    def inject(run: ObservedRun, moment: Moment) -> None:
        sigstop.stop(name, lambda: daemons_of(run.cluster, kind or moment.source), seconds, run.directory, run.over)

    return at(name, trigger, inject)


def trainer_stopped(seconds: float) -> Beside:
    """Stop (SIGSTOP) one trainer once, while it imports TensorFlow."""

    def inject(run: ObservedRun, moment: Moment) -> None:
        if (process := moment.process) is not None:
            sigstop.stop("trainer stopped", lambda: [process], seconds, run.directory, run.over)

    return at("trainer stopped", IMPORTS, inject)


def trainer_hampered(stop_s: float, go_s: float) -> Beside:
    """Stop (SIGSTOP) one trainer repeatedly, from its first step to its last."""

    def inject(run: ObservedRun, moment: Moment) -> None:
        process = moment.process
        for _ in range(round(TRAINING_S / (stop_s + go_s))):
            if process is None or not process.alive or run.over.wait(go_s) or LAST_STEP.seen(run):
                break
            sigstop.stop("trainer hampered", lambda: [process], stop_s, run.directory, run.over)

    return at("trainer hampered", TRAINS, inject)


# ---- killed processes


def container_killed(number: int, begun: Path, after_s: float) -> Beside:
    """Kill the JVM of the application's N-th container, some time after the job created the file `begun`."""

    def inject(run: ObservedRun, moment: Moment) -> None:
        run.over.wait(after_s)
        container = run.container(number)
        for process in mentioning(container) if container else ():
            if fulfils(process, is_java):
                process.kill(signal.SIGKILL)
                _log(run, "container killed", after_s, time.monotonic_ns())

    return at("container killed", FileAppears(begun), inject)


def _log(run: ObservedRun, name: str, seconds: float, start_ns: int) -> None:
    injection_log.write(run.directory, Injection(name, round(seconds * 1e9), start_ns, time.monotonic_ns()))


# ---- the queue


def queue_filled(seconds: float, trigger: Trigger, memory_mb: int = 0) -> Beside:
    """Run a second application that holds memory of the queue until some time after the trigger."""

    @contextmanager
    def beside(run: ObservedRun) -> Iterator[None]:
        with queue_filler.filled(run.cluster, memory_mb) as filler:
            run.other = filler.application_id.removeprefix("application")

            def inject(run: ObservedRun, moment: Moment) -> None:
                injection_log.inject(run.directory, "queue filled", seconds, run.over.wait)
                filler.release()

            with armed(run, [Fault("queue filled", trigger, inject)]):
                yield

    return beside


# ---- the machine


@contextmanager
def hogs(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run `count` processes outside of the run; each keeps a core busy."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        words = [sys.executable, "-c", BUSY, str(os.getpid())]
        processes.extend(subprocess.Popen(words, stdin=subprocess.DEVNULL) for _ in range(count))
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def busy(count: int) -> Beside:
    """Run busy processes during the whole run."""

    @contextmanager
    def beside(run: ObservedRun) -> Iterator[None]:
        with hogs(count):
            yield

    return beside


def busy_in_training(count: int) -> Beside:
    """Run busy processes from the first step to the last."""

    def inject(run: ObservedRun, moment: Moment) -> None:
        start_ns = time.monotonic_ns()
        with hogs(count):
            wait_for(run, LAST_STEP)
        _log(run, "busy in training", TRAINING_S, start_ns)

    return at("busy in training", FIRST_STEP, inject)


def disk_slowed(bytes_per_s: int) -> Beside:
    """Limit the rate at which the DataNodes read from their disk."""

    @contextmanager
    def beside(run: ObservedRun) -> Iterator[None]:
        blocks = sorted(run.cluster.work_dir.glob("datanode-*/**/finalized/**/blk_*"))
        nodes = daemons_of(run.cluster, "datanode")
        with slow_disk.slowed("disk slowed", nodes, blocks, bytes_per_s, run.directory):
            yield

    return beside


def environment_dropped(bytes_per_s: int) -> Beside:
    """Drop the files of the environment from the page cache before the run, and limit the read rate of NodeManagers and
    containers for the disk with these files."""

    @contextmanager
    def beside(run: ObservedRun) -> Iterator[None]:
        files = environment(run.cluster.java.home)
        drop(files)
        managers = daemons_of(run.cluster, "nodemanager")
        with slow_disk.slowed("environment dropped", managers, files[:1], bytes_per_s, run.directory):
            yield

    return beside


def environment(java_home: Path) -> list[Path]:
    """Return the files of the environment that dlobd inspects, and TensorFlow's remaining files."""
    files = {path for paths in page_cache.environment_parts(java_home).values() for path in paths}
    spec = find_spec("tensorflow")
    for place in spec.submodule_search_locations or () if spec else ():
        files.update(path for path in Path(place).rglob("*") if path.is_file())
    return sorted(files)


def drop(paths: Sequence[Path]) -> None:
    """Drop files from the page cache; skip missing and unreadable files."""
    for path in paths:
        try:
            page_cache.drop([path])
        except OSError:
            pass
