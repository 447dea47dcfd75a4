"""One embedded cluster and one good run for all cluster tests, and the real command line to use them with.

The cluster belongs to the test process: its watchdog ends it with that process, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings, work_dir_name
from dlobd.hadoop.embedded.jars import resolve_jars
from dlobd.hadoop.embedded.java import find_java
from dlobd.hadoop.embedded.processes import daemons_of
from dlobd.measures.recording_cost import BUDGET
from dlobd.paths import cache_dir

QUICK = "softmax-mnist-quick"

APPLICATIONS = "nodemanager-*/userlogs/application_*"


def until(condition: Callable[[], Any], within_s: float, what: str) -> Any:
    """What `condition` returns as soon as it is true; fails after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.1)
    return result


def warnings_of(run: dict[str, Any]) -> list[str]:
    """A run's warnings, but for those that are the machine's: what recording cost, a busy machine, a cold start.

    Each is there exactly where the run's own figures are beyond their bound."""
    cost = run["overhead"] or {}  # of a run that was prepared on another machine nobody knows what a span costs
    shares = [cost.get("chain_share"), (cost.get("loop") or {}).get("share")]
    beyond = sum(share is not None and share > BUDGET for share in shares)
    said = [warning for warning in run["warnings"] if warning.startswith("recording took ")]
    assert len(said) == beyond, (said, shares)
    busy = [warning for warning in run["warnings"] if warning.startswith("the machine was busy: ")]
    assert len(busy) == bool(run["core_waits"] and run["core_waits"]["busy"])
    cold = [warning for warning in run["warnings"] if warning.endswith(" in the page cache")]
    assert len(cold) == bool(run["environment_cache"] and run["environment_cache"]["state"] in ("cold", "partly"))
    said += busy + cold
    return [warning for warning in run["warnings"] if warning not in said]


@dataclass
class Ended:
    """What a command printed and returned."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def bundle(self) -> Bundle:
        last = self.out.splitlines()[-1]
        assert last.startswith("bundle: "), self
        return Bundle(Path(last.removeprefix("bundle: ")))

    @property
    def said(self) -> list[str]:
        own = [line for line in self.err.splitlines() if not line.startswith("    | ")]  # the output of a script
        assert "Traceback" not in "\n".join([self.out, *own]), self.err
        return [line for line in own if not line.startswith("[")]

    @property
    def line(self) -> str:
        (line,) = self.said
        assert line.startswith("dlobd: "), line
        return line


@dataclass
class Started:
    """A command that still runs, and the job below it."""

    process: subprocess.Popen[str]
    here: Dlobd
    before: frozenset[Path]
    """The logs of earlier applications."""
    began_s: float = field(default_factory=time.monotonic)

    def ended(self, within_s: float) -> Ended:
        try:
            out, err = self.process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return Ended(self.process.returncode, out, err, time.monotonic() - self.began_s)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal as a terminal or `kill` would: to the command, not to what it started."""
        self.process.send_signal(number)

    def child(self, *words: str, program: str = "") -> psutil.Process:
        """The process below the command whose command line has all `words`, and runs `program` if that is given."""

        def found() -> psutil.Process | None:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    line = process.cmdline()
                except psutil.Error:
                    continue
                runs = bool(line) and Path(line[0]).name.startswith(program)
                if runs and all(word in " ".join(line) for word in words):
                    return process
            return None

        return until(found, 120, f"a child {program} with {words}")  # type: ignore[no-any-return]

    def trains(self) -> dict[str, int]:
        """Waits until every rank has taken steps: role to pid of its trainer."""

        def ranks() -> dict[str, int] | None:
            assert self.process.poll() is None, self.ended(5)
            found = {}
            for path in self.span_files():
                if "first step done" in (text := path.read_text()):
                    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"k":"process"')]
                    found[lines[-1]["role"]] = lines[-1]["pid"]
            return found if {"chief", "worker"} <= found.keys() else None

        return until(ranks, 240, "both ranks train")  # type: ignore[no-any-return]

    def container(self, *words: str) -> psutil.Process:
        """The JVM of one of the job's containers; `words` are in its command line."""

        def found() -> psutil.Process | None:
            names = {path.name for path in self._applications()}  # it may not have been submitted yet
            for process in psutil.process_iter():
                try:
                    line = process.cmdline()
                    mine = names & set(Path(process.environ().get("LOG_DIRS", "").split(",")[0]).parts)
                except psutil.Error:
                    continue
                if mine and line and Path(line[0]).name == "java" and all(word in " ".join(line) for word in words):
                    return process
            return None

        return until(found, 180, f"a container with {words}")  # type: ignore[no-any-return]

    def _applications(self) -> set[Path]:
        return set(self.here.work_dir.glob(APPLICATIONS)) - self.before

    def span_files(self) -> list[Path]:
        return [path for folder in self._applications() for path in folder.glob("container_*/spans-*.jsonl")]


@dataclass
class Dlobd:
    """The command line, with a cache and an output directory of its own."""

    cache: Path
    out: Path
    jars: Path
    python: str = sys.executable
    host: tuple[str, ...] = ()
    """How a command line begins that runs elsewhere, such as in a network namespace."""

    @property
    def work_dir(self) -> Path:
        with pytest.MonkeyPatch.context() as environment:  # its links belong to the cache
            environment.setenv("DLOBD_CACHE", str(self.cache))
            return work_dir_name(self.cache / "cluster")

    def start(self, *words: str, **environment: str) -> Started:
        # TMPDIR: nothing of a test may lie about in /tmp
        before = frozenset(self.work_dir.glob(APPLICATIONS))
        own = {"DLOBD_CACHE": str(self.cache), "DLOBD_JARS": str(self.jars), "TMPDIR": str(self.cache)}
        process = subprocess.Popen(
            [*self.host, self.python, "-m", "dlobd", *words],
            env={**os.environ, **own, **environment},
            cwd=self.cache,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return Started(process, self, before)

    def __call__(self, *words: str, within_s: float = 300, **environment: str) -> Ended:
        started = self.start(*words, **environment)
        try:
            return started.ended(within_s)
        finally:
            started.process.kill()

    def start_run(self, *settings: str, **environment: str) -> Started:
        """Starts the quick experiment with `--set` for each of `settings`."""
        return self.start(*self._run_words(settings), **environment)

    def run(self, *settings: str, within_s: float = 300, **environment: str) -> Ended:
        return self(*self._run_words(settings), within_s=within_s, **environment)

    def _run_words(self, settings: tuple[str, ...]) -> list[str]:
        sets = [word for setting in settings for word in ("--set", setting)]
        return ["run", QUICK, *sets, "--out", str(self.out)]

    def bundles(self) -> list[Path]:
        return sorted(self.out.glob("*/*"))

    def newest(self) -> Bundle:
        return Bundle(max(self.bundles(), key=lambda path: path.stat().st_mtime_ns))

    def processes(self, watchdogs: bool = False) -> list[psutil.Process]:
        """Every process that stems from our commands, but for the daemons and watchdog of a cluster that stays.

        Args:
            watchdogs: count those too.
        """
        mark = os.fsencode(f"DLOBD_CACHE={self.cache}")
        staying = {process.pid for process in daemons_of(self.work_dir)} | {os.getpid()}
        found = []
        for process in psutil.process_iter():
            try:
                environ = Path(f"/proc/{process.pid}/environ").read_bytes()
                line = " ".join(process.cmdline())
            except (OSError, psutil.Error):
                continue
            ours = mark in environ.split(b"\0") or str(self.cache) in line or os.fsencode(self.work_dir) in environ
            if ours and process.pid not in staying and (watchdogs or "dlobd.hadoop.embedded.watchdog" not in line):
                found.append(process)
        return found

    def is_quiet(self, within_s: float = 60) -> None:
        """Fails unless every process of ours has ended in time."""
        deadline = time.monotonic() + within_s
        while left := self.processes():
            if time.monotonic() > deadline:
                pytest.fail(f"still there after {within_s:.0f} s: {[process.cmdline()[:200] for process in left]}")
            time.sleep(0.1)

    def is_empty(self, within_s: float = 60) -> None:
        """Fails unless every daemon and its watchdog have ended in time too."""
        until(
            lambda: not daemons_of(self.work_dir) and not self.processes(watchdogs=True), within_s, "no daemon is left"
        )

    def end_all(self) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass


@pytest.fixture(scope="session")
def short_dir() -> Iterator[Path]:
    """A directory whose name is short enough for the sockets below it."""
    path = Path(tempfile.mkdtemp(prefix="dl-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def jars() -> Path:
    """The Hadoop jars, from the person's cache, so that they are fetched at most once."""
    return resolve_jars(find_java(), lambda line: None)[0].parent


@pytest.fixture(scope="session")
def shared_cluster(short_dir: Path, jars: Path) -> Iterator[EmbeddedCluster]:
    """The cluster that all tests use; commands find it as one that stays."""
    cluster = EmbeddedCluster(ClusterSettings(short_dir / "c" / "cluster"))
    cluster.start(lambda line: None)
    cluster.release()
    yield cluster
    cluster.stop()
    assert daemons_of(cluster.work_dir) == []


@pytest.fixture(scope="session")
def quick_run(shared_cluster: EmbeddedCluster, short_dir: Path, jars: Path) -> Ended:
    """A good run of the quick experiment, for all tests that only look."""
    ended = Dlobd(shared_cluster.work_dir.parent, short_dir / "good", jars).run()
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture
def dlobd(shared_cluster: EmbeddedCluster, jars: Path, tmp_path: Path) -> Iterator[Dlobd]:
    """The command line on the shared cluster; afterwards nothing of it may run."""
    command = Dlobd(shared_cluster.work_dir.parent, tmp_path / "runs", jars)
    yield command
    try:
        command.is_quiet()
    finally:
        command.end_all()


@pytest.fixture
def alone(jars: Path) -> Iterator[Dlobd]:
    """The command line with an empty cache, so without a cluster; afterwards nothing of it may run."""
    with tempfile.TemporaryDirectory(prefix="dl-", dir="/tmp", ignore_cleanup_errors=True) as cache:
        # made once, as the jars are fetched once: laying them out takes longer than a start
        prepared = cache_dir() / "daemons"
        prepared.mkdir(parents=True, exist_ok=True)
        (Path(cache) / "daemons").symlink_to(prepared)
        command = Dlobd(Path(cache), Path(cache) / "runs", jars)
        yield command
        try:
            command.is_quiet()
            assert daemons_of(command.work_dir) == []
        finally:
            for process in daemons_of(command.work_dir):
                process.kill(signal.SIGKILL)
            command.end_all()
