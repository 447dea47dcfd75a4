"""What is done to a run from outside. Each fault waits for its moment in a thread, is bounded in time, and is undone,
also when the run fails or this command is interrupted. Only processes of the bench's own cluster are touched.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import psutil

from bench.pathologies import moments
from bench.pathologies.moments import Moment
from bench.pathologies.stage import Fault, Scene
from dlobd.hadoop.embedded.processes import ProcessId, mentioning
from dlobd.run import page_cache
from dlobd.selftest import queue_holder, slow_disk
from dlobd.selftest.triggers import daemons_of

T = TypeVar("T")

TRAINING_S = 600.0
"""The longest that anything is done to a training."""
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"
"""A process that keeps a core busy until its parent has ended, whose id it is told."""


def after(name: str, moment: Moment[T], body: Callable[[Scene, T], None]) -> Fault:
    """Something is done in a thread of its own once a moment has come; when the context ends, it ends."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        scene.planned.append(name)
        find = moment.watch(scene)

        def wait() -> None:
            if (found := moment.wait(scene, find)) is not None:
                body(scene, found)

        thread = threading.Thread(target=wait, name=name)
        thread.start()
        try:
            yield
        finally:
            scene.over.set()
            thread.join()

    return fault


# ---- stopped processes


def stopped(processes: Sequence[ProcessId], seconds: float, over: threading.Event) -> None:
    """Stops processes for so long, or until it is over; then they go on."""
    try:
        for process in processes:
            process.kill(signal.SIGSTOP)
        over.wait(seconds)
    finally:
        for process in processes:
            process.kill(signal.SIGCONT)


def daemon_stopped(kind: str, seconds: float, moment: Moment[str]) -> Fault:
    """Daemons of a kind stand still; of no kind: the one whose log has the line."""
    name = f"{kind or 'daemon'} stopped"

    def body(scene: Scene, found: str) -> None:
        if processes := daemons_of(scene.cluster, kind or found):
            scene.made.append(name)
            stopped(processes, seconds, scene.over)

    return after(name, moment, body)


def trainer_stopped(seconds: float) -> Fault:
    """One trainer stands still once, while it imports TensorFlow."""

    def body(scene: Scene, process: ProcessId) -> None:
        scene.made.append("trainer stopped")
        stopped([process], seconds, scene.over)

    return after("trainer stopped", moments.IMPORTS, body)


def trainer_hampered(stop_s: float, go_s: float) -> Fault:
    """One trainer stands still again and again, from its first step to its last."""

    def body(scene: Scene, process: ProcessId) -> None:
        scene.made.append("trainer hampered")
        ended = moments.LAST_STEP.watch(scene)
        for _ in range(round(TRAINING_S / (stop_s + go_s))):
            if not process.alive or scene.over.wait(go_s) or ended():
                break
            stopped([process], stop_s, scene.over)

    return after("trainer hampered", moments.TRAINS, body)


# ---- killed processes


def container_killed(number: int, begun: Path, after_s: float) -> Fault:
    """The JVM of the application's N-th container is killed, so long after the job has made the file `begun`."""

    def body(scene: Scene, found: str) -> None:
        scene.over.wait(after_s)
        for container in scene.containers(number)[:1]:
            for process in filter(_is_java, mentioning(container)):
                process.kill(signal.SIGKILL)
                scene.made.append("container killed")

    return after("container killed", moments.file(begun), body)


def _is_java(process: ProcessId) -> bool:
    try:
        return Path((psutil.Process(process.pid).cmdline() or [""])[0]).name == "java"
    except psutil.Error:
        return False


# ---- the queue


def queue_held(seconds: float, moment: Moment[str], memory_mb: int = 0) -> Fault:
    """Another application holds memory of the queue, until so long after a moment."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        with queue_holder.held(scene.cluster, memory_mb) as holder:

            def body(scene: Scene, found: str) -> None:
                scene.made.append("queue held")
                scene.over.wait(seconds)
                holder.release()

            with after("queue held", moment, body)(scene):
                yield

    return fault


# ---- the machine


@contextmanager
def hogs(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes, none of them the run's, each of which keeps a core busy."""
    made: list[subprocess.Popen[bytes]] = []
    try:
        words = [sys.executable, "-c", BUSY, str(os.getpid())]
        made.extend(subprocess.Popen(words, stdin=subprocess.DEVNULL) for _ in range(count))
        yield made
    finally:
        for each in made:
            each.kill()
        for each in made:
            each.wait()


def busy(count: int) -> Fault:
    """Busy processes beside the whole run."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        with hogs(count):
            yield

    return fault


def busy_in_training(count: int) -> Fault:
    """Busy processes from the first step to the last."""

    def body(scene: Scene, found: str) -> None:
        scene.made.append("busy in training")
        with hogs(count):
            moments.LAST_STEP.wait(scene, moments.LAST_STEP.watch(scene))

    return after("busy in training", moments.FIRST_STEP, body)


def disk_slowed(bytes_per_s: int) -> Fault:
    """What the DataNodes read from their disk is limited."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        blocks = sorted(scene.cluster.work_dir.glob("datanode-*/**/finalized/**/blk_*"))
        with slow_disk.slowed(daemons_of(scene.cluster, "datanode"), blocks, bytes_per_s, scene.directory):
            yield

    return fault


def environment_dropped(bytes_per_s: int) -> Fault:
    """The kernel forgets the files of the environment before the run, and what the NodeManagers and their containers
    read from the disk that has them is limited."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        files = environment(scene.cluster.java.home)
        drop(files)
        managers = daemons_of(scene.cluster, "nodemanager")
        with slow_disk.slowed(managers, files[:1], bytes_per_s, scene.directory):
            yield

    return fault


def environment(java_home: Path) -> list[Path]:
    """The files that dlobd looks at, and all others of TensorFlow."""
    found = {path for paths in page_cache.environment_parts(java_home).values() for path in paths}
    spec = find_spec("tensorflow")
    for place in spec.submodule_search_locations or () if spec else ():
        found.update(path for path in Path(place).rglob("*") if path.is_file())
    return sorted(found)


def drop(paths: Sequence[Path]) -> None:
    """Has the kernel forget files; those that nobody may read are left alone."""
    for path in paths:
        try:
            page_cache.drop([path])
        except OSError:
            pass  # it is gone, or not ours
