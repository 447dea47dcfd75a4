"""One run after the other on an embedded cluster, each by the command line, with faults beside it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dlobd.errors import RunFailed
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import default_settings

LONGEST_S = 1200.0
"""Beyond any run's own `timeout_s`: then it is ended from here."""
END_S = 90.0
"""How long a run may take to end after SIGTERM: it stops its job, and keeps the evidence."""
LOOK_S = 0.1


@dataclass(slots=True)
class Scene:
    """A run that is under way or about to begin, as faults see it.

    Attributes:
        directory: of this run; bundles lie in it.
        over: set when the run has ended, or is to end.
        planned, made: names of faults.
    """

    cluster: EmbeddedCluster
    directory: Path
    over: threading.Event = field(default_factory=threading.Event)
    planned: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    _before: frozenset[Path] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset((*self._applications(), *self._driver_logs()))

    @property
    def driver_logs(self) -> list[Path]:
        """What spark-submit has written, and in client mode the driver, as soon as it is there."""
        return [path for path in self._driver_logs() if path not in self._before]

    def containers(self, number: int) -> list[str]:
        """The ids of N-th containers of the run's applications."""
        return [path.name for path in self._of_containers(f"container_*_{number:06}")]

    def span_files(self) -> list[Path]:
        """What processes in containers have recorded so far."""
        return self._of_containers("container_*/spans-*.jsonl")

    def _of_containers(self, pattern: str) -> list[Path]:
        new = [path for path in self._applications() if path not in self._before]
        return sorted(path for application in new for path in application.glob(pattern))

    def _applications(self) -> Iterator[Path]:
        return self.cluster.work_dir.glob("nodemanager-*/userlogs/application_*")

    def _driver_logs(self) -> Iterator[Path]:
        return self.directory.glob("*/*/logs/driver.stderr")


Fault = Callable[[Scene], AbstractContextManager[None]]
"""Does something to a run while the context lasts, and undoes it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a run. `said`: the line of a failure; `unmade`: faults for which the moment never came."""

    code: int
    bundle: Path | None
    said: str = ""
    unmade: tuple[str, ...] = ()


class Stage:
    """Lends each run the cluster, which is started when it is first needed: `dlobd run` finds it as one that stays.

    Args:
        own: Hadoop settings of that cluster, KEY=VALUE each.
    """

    def __init__(self, out: Path, progress: Callable[[str], None], own: Sequence[str] = ()) -> None:
        self.out = out.resolve()
        self.progress = progress
        self._own = own
        self._cluster: EmbeddedCluster | None = None

    @property
    def cluster(self) -> EmbeddedCluster:
        """The one that runs, or a new one, also where it lost a daemon.

        Raises:
            SetupError, ClusterError, Busy: as `EmbeddedCluster.start`.
        """
        if self._cluster is not None and not all(daemon["alive"] for daemon in self._cluster.daemons_now()):
            self.close()
        if self._cluster is None:
            started = EmbeddedCluster(default_settings(own=self._own))
            started.start(self.progress)
            self._cluster = started
            started.release()
        return self._cluster

    def close(self) -> None:
        """Stops the cluster."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop(self.progress)

    def run(
        self,
        directory: Path,
        words: Sequence[str],
        faults: Sequence[Fault] = (),
        host: Sequence[str] = (),
        longest_s: float = LONGEST_S,
    ) -> Ended:
        """Runs `dlobd WORDS` to its end, with faults beside it.

        Args:
            directory: for what it says; it is told to put its bundle there.
            host: how the command line begins, of a run elsewhere: that has a cluster of its own, and no faults.

        Raises:
            SetupError, ClusterError: a fault cannot be made here.
            RunFailed: it did not end in time.
        """
        directory.mkdir(parents=True, exist_ok=True)
        scene = None if host else Scene(self.cluster, directory)
        if host:
            self.close()
        command = [*host, sys.executable, "-m", "dlobd", *words]
        out, err = directory / "stdout", directory / "stderr"
        with ExitStack() as stack:
            if scene:
                for fault in faults:
                    stack.enter_context(fault(scene))
            with out.open("wb") as to_out, err.open("wb") as to_err:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err, start_new_session=True
                )
                try:
                    _wait(process, longest_s)
                finally:
                    end(process)
                    if scene:
                        scene.over.set()
        unmade = tuple(name for name in scene.planned if name not in scene.made) if scene else ()
        return Ended(process.returncode, bundle_named(out.read_text()), _line(err.read_text()), unmade)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, patience, SIGKILL; nothing where it has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def bundle_named(said: str) -> Path | None:
    """The bundle that the last line of a command's output names."""
    *_, last = said.splitlines() or [""]
    return Path(last.removeprefix("bundle: ")) if last.startswith("bundle: ") else None


def _wait(process: subprocess.Popen[bytes], longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise RunFailed(f"The run did not end within {longest_s:.0f} s.")
        time.sleep(LOOK_S)


def _line(said: str) -> str:
    """The line of a failure."""
    lines = [line for line in said.splitlines() if line.startswith("dlobd: ")]
    return lines[-1].removeprefix("dlobd: ") if lines else ""
