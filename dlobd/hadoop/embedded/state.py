"""State of a cluster in its work directory: `state.json`, and a lock that only one command at a time holds."""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dlobd.errors import Busy, ClusterError
from dlobd.hadoop.embedded.configuration import DaemonPlan
from dlobd.paths import make_writable, replace_file
from dlobd.process_id import ProcessId, identify
from dlobd.tracing import clock

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Facts that another process needs to use or stop a cluster."""

    domain: str  # identifies the boot; after a reboot no recorded process is alive
    hadoop: str
    java_home: str
    java_version: str
    java_origin: str
    stays: bool  # the cluster outlives its `owner`, the process that started it
    ready: bool  # every daemon has answered
    owner: ProcessId | None
    started_wall_s: float
    daemons: tuple[DaemonPlan, ...]
    processes: Mapping[str, ProcessId] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)  # Hadoop settings of the user
    version: int = STATE_VERSION

    def alive(self) -> dict[str, ProcessId]:
        if self.domain != clock.domain():
            return {}
        return {name: process for name, process in self.processes.items() if process.alive}


def write_state(work_dir: Path, state: ClusterState) -> None:
    """Replace state.json atomically."""
    # not durable: after a crash of the machine no cluster runs
    replace_file(work_dir / "state.json", (json.dumps(asdict(state), indent=1) + "\n").encode(), durable=False)


def read_state(work_dir: Path) -> ClusterState | None:
    """Read the state; None if there is no state file. Raises ClusterError if it is damaged or of another version."""
    path = work_dir / "state.json"
    try:
        return _from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ClusterError(f"{path} cannot be read: {error!r}.", f"remove {path} and try again.") from error


def _from_json(raw: object) -> ClusterState:
    if not isinstance(raw, dict) or raw.get("version") != STATE_VERSION:
        raise ValueError(f"it is not of version {STATE_VERSION}")
    raw["owner"] = ProcessId(**raw["owner"]) if raw["owner"] else None
    raw["daemons"] = tuple(DaemonPlan(**daemon) for daemon in raw["daemons"])
    raw["processes"] = {name: ProcessId(**process) for name, process in raw["processes"].items()}
    return ClusterState(**raw)


class WorkDirLock:
    """Lock of the command that starts, uses or stops the cluster of a work directory."""

    def __init__(self, work_dir: Path) -> None:
        self._path = work_dir / "lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting. Raises Busy, with its pid, if another process has it, SetupError if the work
        directory cannot be written."""
        if self._fd is not None:
            return
        make_writable(self._path.parent)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            known = f" (pid {holder})" if holder.isdecimal() and identify(int(holder)) else ""
            raise Busy(
                f"Another dlobd command{known} is using the cluster in {os.path.realpath(self._path.parent)}.",
                "wait for it to finish, or stop it.",
            ) from None
        except BaseException:
            os.close(fd)
            raise
        os.truncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Free the lock; does nothing if it is not held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
