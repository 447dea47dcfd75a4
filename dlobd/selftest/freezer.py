"""Delays from outside: a process is stopped (SIGSTOP) for a known time, at a moment that a daemon's log names.

To all other processes this looks like a hung daemon, a paused machine or a stalled disk. The interval is from when
the kernel shows every thread as stopped until just before it is sent on.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from dlobd.errors import ClusterError
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.processes import ProcessId, mentioning
from dlobd.hadoop.embedded.state import read_state
from dlobd.selftest import truth
from dlobd.selftest.truth import Injection

LOOK_S = 0.001
STOPPED_WITHIN_S = 2.0
REST_S = 10.0
BLOCKER_S = 300
"""How long the other application would live if it were not killed."""


@dataclass(frozen=True, slots=True)
class _Trigger:
    """What is stopped when a line that fits `pattern` appears in one of the logs; `targets` is asked then."""

    logs: str  # a daemon's kind, or the name of one of its logs
    pattern: re.Pattern[str]
    targets: Callable[[EmbeddedCluster, str, re.Match[str]], Sequence[ProcessId]]


def _daemon(cluster: EmbeddedCluster, kind: str) -> list[ProcessId]:
    state = read_state(cluster.work_dir)
    return [process for name, process in state.processes.items() if name.startswith(kind)] if state else []


TRIGGERS: Mapping[str, _Trigger] = {
    "yarn/localise": _Trigger(
        "nodemanager",
        re.compile(r"Container container_\w+_000001 transitioned from NEW to LOCALIZING"),
        lambda cluster, log, match: _daemon(cluster, log),
    ),
    "spark/executor-start": _Trigger(
        "nodemanager",
        re.compile(r"Container (container_\w+_000002) transitioned from SCHEDULED to RUNNING"),
        lambda cluster, log, match: mentioning(match[1]),
    ),
    "hdfs/read": _Trigger(
        "namenode-audit",
        # of a reader that is redirected; dlobd's own question where the blocks are, before the window, is an open only
        re.compile(r"cmd=getfileinfo\s+src=\S*/train/part-\S*\s.*proto=webhdfs"),
        lambda cluster, log, match: _daemon(cluster, "datanode"),
    ),
    "hdfs/write": _Trigger(
        "namenode-audit",
        re.compile(r"cmd=create\s+src=/dlobd/runs/\S+/model/"),
        lambda cluster, log, match: _daemon(cluster, "datanode"),
    ),
}

ACCEPTED = re.compile(r"(application_\w+) State change from SUBMITTED to ACCEPTED")


@contextmanager
def watching(cluster: EmbeddedCluster, plan: Mapping[str, Sequence[float]], directory: Path) -> Iterator[None]:
    """While the context lasts, makes the delays of `plan` (point to seconds) that come from outside, each once.

    Raises:
        ClusterError: YARN does not take the application that is to hold the queue.
    """
    stop = threading.Event()
    threads = []
    with ExitStack() as stack:
        if seconds := plan.get("yarn/queue"):
            release = stack.enter_context(_queue_held(cluster))
            tail = _Tail(cluster, "resourcemanager")
            threads.append(threading.Thread(target=_release, args=(tail, release, seconds[0], directory, stop)))
        for point, trigger in TRIGGERS.items():
            if seconds := plan.get(point):
                tail = _Tail(cluster, trigger.logs)
                job = (cluster, point, trigger, tail, seconds[0], directory, stop)
                threads.append(threading.Thread(target=_freeze_once, args=job))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class _Tail:
    """What is appended from now on to the logs that `wanted` names: a daemon's kind, or one log."""

    def __init__(self, cluster: EmbeddedCluster, wanted: str) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._offsets = {name: path.stat().st_size for name, path in self._logs().items()}
        self._rest: dict[str, str] = {}

    def _logs(self) -> dict[str, Path]:
        files = self._cluster.log_files()  # a log that is not there yet is new from its first byte on
        own = re.compile(rf"{self._wanted}(-\d+)?")
        return {name: path for name, path in files.items() if own.fullmatch(name)}

    def find(self, pattern: re.Pattern[str], stop: threading.Event) -> tuple[str, re.Match[str]] | None:
        """Waits for a line that fits; the log's name and the match. None once `stop` is set."""
        while not stop.wait(LOOK_S):
            for name, path in self._logs().items():
                offset = self._offsets.get(name, 0)
                if path.stat().st_size == offset:
                    continue
                with path.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
                self._offsets[name] = offset + len(data)
                *lines, self._rest[name] = (self._rest.get(name, "") + data.decode(errors="replace")).split("\n")
                for line in lines:
                    if match := pattern.search(line):
                        return name, match
        return None


def _freeze_once(
    cluster: EmbeddedCluster,
    point: str,
    trigger: _Trigger,
    tail: _Tail,
    seconds: float,
    directory: Path,
    stop: threading.Event,
) -> None:
    found = tail.find(trigger.pattern, stop)
    if found is None:
        return
    log, match = found
    freeze(point, lambda: trigger.targets(cluster, log, match), seconds, directory)


def freeze(point: str, targets: Callable[[], Sequence[ProcessId]], seconds: float, directory: Path) -> None:
    """Stops processes for so long, and writes it down; nothing is written where there was nothing to stop.

    Args:
        targets: asked again until it names no more than are stopped: a process may just be starting another one.
    """
    stopped: list[ProcessId] = []
    deadline = time.monotonic() + STOPPED_WITHIN_S
    try:
        while time.monotonic() < deadline:
            more = [process for process in targets() if process not in stopped]
            for process in more:
                process.kill(signal.SIGSTOP)
            stopped += more
            if stopped and not more and all(map(_is_stopped, stopped)):
                break
            time.sleep(LOOK_S)
        else:
            return
        start_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns()
    finally:
        for process in stopped:
            process.kill(signal.SIGCONT)
    truth.write(directory, Injection(point, round(seconds * 1e9), start_ns, end_ns))


def _is_stopped(process: ProcessId) -> bool:
    """Whether the kernel has stopped every thread, or the process is gone."""
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        states = [(thread / "stat").read_bytes().rpartition(b")")[2].split()[0] for thread in threads]
    except OSError:
        return not process.alive
    return all(state in (b"T", b"t", b"Z", b"X") for state in states)


# ---- the queue


@contextmanager
def _queue_held(cluster: EmbeddedCluster) -> Iterator[Callable[[], None]]:
    """Another application's ApplicationMaster has all the memory that its queue gives to ApplicationMasters.

    Yields what ends it.
    """
    apps = f"{cluster.rm_url}/ws/v1/cluster/apps"

    def state() -> dict[str, object]:
        return dict(requests.get(f"{apps}/{application_id}", timeout=REST_S).json()["app"])

    def release() -> None:
        requests.put(f"{apps}/{application_id}/state", json={"state": "KILLED"}, timeout=REST_S)

    try:
        application_id = requests.post(f"{apps}/new-application", timeout=REST_S).json()["application-id"]
        other = {
            "application-id": application_id,
            "application-name": "holds the queue",
            "max-app-attempts": 1,
            "resource": {"memory": cluster.settings.nodemanager_memory_mb, "vCores": 1},
            "am-container-spec": {"commands": {"command": f"sleep {BLOCKER_S}"}},
        }
        requests.post(apps, json=other, timeout=REST_S).raise_for_status()
        _until(lambda: int(str(state()["allocatedMB"])) > 0, "has its container")
        yield release
    except requests.RequestException as error:
        raise ClusterError(
            f"YARN did not accept another application: {error}.", "check `dlobd cluster status`"
        ) from None
    finally:
        release()
        _until(lambda: state()["state"] == "KILLED", "ends")


def _until(holds: Callable[[], bool], what: str, patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise ClusterError(f"The application that holds the queue never {what}.", "check `dlobd cluster status`")
        time.sleep(0.05)


def _release(tail: _Tail, release: Callable[[], None], seconds: float, directory: Path, stop: threading.Event) -> None:
    if tail.find(ACCEPTED, stop):
        truth.inject(directory, "yarn/queue", seconds)
        release()
