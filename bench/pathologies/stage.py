"""Sequential runs of the dlobd command on an embedded cluster, with faults during each run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.pathologies.faults import Beside
from dlobd.errors import RunFailed
from dlobd.faults import injection_log
from dlobd.faults.observed_run import ObservedRun
from dlobd.findings import rules
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import default_settings

QUICK_START = tuple(
    word
    for jvm in ("driver", "executor", "yarn.am")
    for word in ("--conf", f"spark.{jvm}.extraJavaOptions={rules.QUICK_START}")
)
"""Remedy of finding jvm-startup, for `dlobd run` and spark-submit. Without it, jvm-startup is the first finding in many
short runs."""

LONGEST_S = 1200.0
"""Deadline of a run; longer than its `timeout_s`, so that dlobd's own timeout comes first."""
END_S = 90.0
"""Deadline after SIGTERM, in which a run stops its job and collects the evidence."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of a run. `failure`: failure line of dlobd. `missing`: faults without an occurrence of their trigger."""

    code: int
    bundle: Path | None
    failure: str = ""
    missing: tuple[str, ...] = ()


class Stage:
    """Shared cluster of all runs, started on first use; `dlobd run` uses a running cluster.

    Args:
        own: Hadoop settings of the cluster, of the form KEY=VALUE.
    """

    def __init__(self, out: Path, progress: Callable[[str], None], own: Sequence[str] = ()) -> None:
        self.out = out.resolve()
        self.progress = progress
        self._own = own
        self._cluster: EmbeddedCluster | None = None

    @property
    def cluster(self) -> EmbeddedCluster:
        """The running cluster; a new cluster if none is running, or if a daemon has died.

        Raises:
            SetupError, ClusterError, Busy: see `EmbeddedCluster.start`.
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
        """Stop the cluster."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop(self.progress)

    def run(
        self,
        directory: Path,
        words: Sequence[str],
        beside: Sequence[Beside] = (),
        host: Sequence[str] = (),
        longest_s: float = LONGEST_S,
    ) -> Ended:
        """Run `dlobd WORDS` with faults, and wait for its end.

        Args:
            directory: directory for the command's output, the injection log and the bundle.
            host: prefix of the command line that runs it on another host, with its own cluster and without faults.

        Raises:
            SetupError, ClusterError: a fault cannot be injected on this machine.
            RunFailed: the run did not end in time.
        """
        directory.mkdir(parents=True, exist_ok=True)
        (directory / injection_log.FILE).unlink(missing_ok=True)
        run = None if host else ObservedRun(self.cluster, directory, bundles=directory)
        if host:
            self.close()
        command = [*host, sys.executable, "-m", "dlobd", *words]
        out, err = directory / "stdout", directory / "stderr"
        with ExitStack() as stack:
            if run:
                for fault in beside:
                    stack.enter_context(fault(run))
            with out.open("wb") as to_out, err.open("wb") as to_err:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err, start_new_session=True
                )
                try:
                    _wait(process, longest_s)
                finally:
                    end(process)
                    if run:
                        run.over.set()
        injected = {injection.point for injection in injection_log.read(directory)}
        missing = tuple(name for name in run.planned if name not in injected) if run else ()
        return Ended(process.returncode, bundle_named(out.read_text()), _failure(err.read_text()), missing)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by SIGTERM, and after a deadline by SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def bundle_named(output: str) -> Path | None:
    """Read the path of the bundle from the last line of a command's output."""
    *_, last = output.splitlines() or [""]
    return Path(last.removeprefix("bundle: ")) if last.startswith("bundle: ") else None


def _wait(process: subprocess.Popen[bytes], longest_s: float) -> None:
    try:
        process.wait(longest_s)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"The run did not end within {longest_s:.0f} s.") from error


def _failure(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.startswith("dlobd: ")]
    return lines[-1].removeprefix("dlobd: ") if lines else ""
