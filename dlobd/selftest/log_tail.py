"""What the logs of a run say while it runs: each line as soon as it is written, of daemons, driver and containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster

APPEARED = ""
"""What is told of a log as its first line, if it was not there from the start."""

SPARK_SUBMIT, DRIVER = "spark-submit", "driver"


@dataclass(slots=True)
class WatchedRun:
    """A run on the embedded cluster, seen from outside. `bundle` is known once it has begun.

    other: the application besides it, if there is one, without its first word: _1795257292722_0001. Of it nothing is
        told.
    """

    cluster: EmbeddedCluster
    cluster_mode: bool = False
    other: str = ""
    bundle: Bundle | None = None
    _before: frozenset[Path] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset(self._applications())

    def began(self, bundle: Bundle) -> None:
        """To be told the run's bundle."""
        self.bundle = bundle

    def logs(self) -> dict[str, Path]:
        """Name to path of each log that exists: a daemon's by its name; `spark-submit`; `driver`, which in client mode
        is the same; `container-N` of the application's N-th container."""
        found = {name: path for name, path in self.cluster.log_files().items() if path.exists()}
        found |= {f"container-{_number(path)}": path for path in self._containers()}
        if self.bundle and (log := self.bundle.logs / "driver.stderr").exists():
            found[SPARK_SUBMIT] = log
        driver = found.get("container-1" if self.cluster_mode else SPARK_SUBMIT)
        return found | ({DRIVER: driver} if driver else {})

    def tells_of_it(self, line: str) -> bool:
        """Whether a line is not of the other application."""
        return not self.other or self.other not in line

    def container(self, number: int) -> str:
        """The id of the application's N-th container; empty before it has a log."""
        return next((path.parent.name for path in self._containers() if _number(path) == number), "")

    def _containers(self) -> list[Path]:
        new = [path for path in self._applications() if path not in self._before]
        own = [path for path in new if not (self.other and path.name.endswith(self.other))]
        return [log for path in own for log in path.glob("container_*/stderr")]

    def _applications(self) -> list[Path]:
        return list(self.cluster.work_dir.glob("nodemanager-*/userlogs/application_*"))


class LogTail:
    """What is appended from now on to logs, some of which are not there yet."""

    def __init__(self, logs: Callable[[], Mapping[str, Path]]) -> None:
        self._logs = logs
        self._offsets = {name: path.stat().st_size for name, path in logs().items()}
        self._rest: dict[str, str] = {}

    def lines(self) -> Iterator[tuple[str, str]]:
        """The whole lines since the last call, each with its log's name."""
        for name, path in self._logs().items():
            if name not in self._offsets:
                self._offsets[name] = 0
                yield name, APPEARED
            data = _from(path, self._offsets[name])
            self._offsets[name] += len(data)
            *whole, self._rest[name] = (self._rest.get(name, "") + data.decode(errors="replace")).split("\n")
            for line in whole:
                yield name, line


def _from(path: Path, offset: int) -> bytes:
    try:
        if path.stat().st_size <= offset:
            return b""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""  # a container's log is removed once its application has ended


def _number(stderr: Path) -> int:
    """1 of container_1795257292722_0002_01_000001/stderr."""
    return int(stderr.parent.name.rpartition("_")[2])
