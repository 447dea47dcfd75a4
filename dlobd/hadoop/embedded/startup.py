"""Start of a cluster: checks of this machine, directories, and the parallel start of all daemons."""

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dlobd.errors import ClusterError, SetupError
from dlobd.hadoop.embedded import configuration, daemons
from dlobd.hadoop.embedded.class_path import ClassPath
from dlobd.hadoop.embedded.configuration import ClusterSettings, DaemonPlan
from dlobd.hadoop.embedded.java import Java
from dlobd.memory import available_memory_bytes
from dlobd.process_id import ProcessId, identify

HDFS_RESERVE_BYTES = 2 << 30
"""Required free disk. The NameNode enters safe mode below 100 MB, and a job needs more space."""

NON_HEAP_MB = 64
"""Memory of a daemon besides its heap. Six daemons with 256 MB of heap used 1.3 to 1.8 GB."""

POLL_S = 0.25
PROBE_TIMEOUT_S = (2.0, 2.0)
"""Timeout of a probe. A starting web server accepts connections and answers late; other probes must not wait."""


class PortClash(Exception):
    """Error: another program took a daemon's port between its choice and the daemon's bind."""


def check_memory(settings: ClusterSettings) -> None:
    """Raise SetupError if the daemons do not fit into the available memory."""
    count = len(configuration.plan_hosts(settings))
    needed = count * (settings.daemon_heap_mb + NON_HEAP_MB) << 20
    available = available_memory_bytes()
    if available < needed:
        raise SetupError(
            f"The {count} daemons need {needed >> 20} MB of memory, but only {available >> 20} MB are available.",
            "stop other programs, or use a machine with more memory.",
        )


def check_disk(work_dir: Path) -> None:
    """Raise SetupError if the free disk is too small for HDFS."""
    free = shutil.disk_usage(work_dir).free
    if free < HDFS_RESERVE_BYTES:
        raise SetupError(
            f"HDFS needs {HDFS_RESERVE_BYTES >> 20} MB of free disk, but {work_dir} has {free >> 20} MB.",
            "free some disk space (dlobd clean), or set DLOBD_CACHE to a directory on another disk.",
        )


def prepare_directories(work_dir: Path) -> None:
    """Clear the directories of logs and containers; the logs of the last start move to `log.previous`."""
    if (work_dir / "log").exists():
        shutil.rmtree(work_dir / "log.previous", ignore_errors=True)
        # the directory is not renamed: in a container it may belong to a lower layer, which cannot be renamed
        shutil.move(work_dir / "log", work_dir / "log.previous")
    for old in (work_dir / "tmp", work_dir / "resourcemanager", *work_dir.glob("nodemanager-*")):
        shutil.rmtree(old, ignore_errors=True)
    for name in ("tmp", "home", "log"):
        (work_dir / name).mkdir(parents=True, exist_ok=True)


class Launch:
    """Start of the `planned` daemons of a cluster, or of those that are `here` on this host. `record` receives each
    process right after its start, so that it can be found if dlobd is killed."""

    def __init__(
        self,
        settings: ClusterSettings,
        planned: Sequence[DaemonPlan],
        java: Java,
        classes: ClassPath,
        record: Callable[[str, ProcessId], None],
        here: Sequence[DaemonPlan] | None = None,
    ) -> None:
        self._settings = settings
        self._work_dir = settings.work_dir
        self._format_record = settings.work_dir / "hdfs-formatted"
        self._here = planned if here is None else here
        self._java = java
        self._classes = classes
        self._record = record
        self._namenode = next(daemon for daemon in planned if daemon.kind == "namenode")
        self._manager = next(daemons.web_address(d) for d in planned if d.kind == "resourcemanager")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.children: list[subprocess.Popen[bytes]] = []
        """All started processes, to be reaped."""

    def run(self, progress: Callable[[str], None], deadline_s: float) -> None:
        """Start the daemons; return when all are ready and, if there is a DataNode, HDFS accepts writes. Raises
        PortClash if the caller must start again with other ports, ClusterError if a daemon died, or not all were ready
        after `deadline_s` seconds."""
        began = time.monotonic()
        # HDFS is formatted while the other daemons start, because they wait for the NameNode
        formatting = self._start_format(progress) if self._namenode in self._here else None
        for daemon in self._here:
            if daemon != self._namenode or formatting is None:
                self._start(daemon)
        waiting = {daemon.name: daemon for daemon in self._here}
        progress(f"waiting for {', '.join(waiting)}")
        # no probes until then: a daemon that answers late would delay the NameNode, for which all daemons wait
        while formatting is not None:
            self._check(waiting, began, deadline_s)
            time.sleep(POLL_S / 5)
            formatting = self._after_format(formatting)
        while waiting:
            for name in list(waiting):
                self._check(waiting, began, deadline_s)
                if daemons.is_ready(waiting[name], self._manager, PROBE_TIMEOUT_S):
                    del waiting[name]
                    progress(f"waiting for {', '.join(waiting) or 'HDFS to leave safe mode'}")
            time.sleep(POLL_S)
        # safe mode ends after the last DataNode has reported its blocks, so this is the last probe
        stores = any(daemon.kind == "datanode" for daemon in self._here)
        while stores and daemons.in_safe_mode(self._namenode, PROBE_TIMEOUT_S):
            self._check(waiting, began, deadline_s)
            time.sleep(POLL_S)
        progress(f"cluster ready after {time.monotonic() - began:.1f} s")

    def check(self) -> None:
        """Raise PortClash or ClusterError if a daemon has ended."""
        for name, child in self._running.items():
            if child.poll() is not None:
                log = self._work_dir / "log" / name
                cause = daemons.failure(log, name)
                if daemons.is_port_clash(cause):
                    raise PortClash(cause)
                raise ClusterError(f"{name} exited with code {child.returncode}: {cause}.", f"see {log}.")

    def _check(self, waiting: Mapping[str, DaemonPlan], began: float, deadline_s: float) -> None:
        self.check()
        if time.monotonic() - began > deadline_s:
            missing = ", ".join(waiting) or "HDFS is still in safe mode"
            raise ClusterError(
                f"The cluster was not ready after {deadline_s:.0f} s: {missing}.",
                f"see {self._work_dir / 'log'}; if HDFS's content is damaged, remove {self._work_dir}.",
            )

    def _start(self, daemon: DaemonPlan) -> None:
        self._running[daemon.name] = self._spawn(daemon)

    def _spawn(self, daemon: DaemonPlan, arguments: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        heap_mb = self._settings.daemon_heap_mb
        command = daemons.java_command(self._java, self._work_dir, daemon, self._classes, heap_mb, arguments)
        env = daemons.environment(self._java, self._work_dir, daemon.host)
        child = daemons.start_process(command, env, self._work_dir / "log" / daemon.name, daemon.name)
        self.children.append(child)
        process = identify(child.pid)
        if process is not None:
            self._record(daemon.name, process)
        return child

    def _start_format(self, progress: Callable[[str], None]) -> subprocess.Popen[bytes] | None:
        """Start `NameNode -format` if HDFS is new, or if the DataNodes have become too few to serve all blocks."""
        count = len(self._settings.datanode_hosts)
        try:
            if int(self._format_record.read_text()) <= count:
                return None
            progress(f"HDFS had more than {count} DataNodes: formatting it again")
        except (OSError, ValueError):
            progress("formatting HDFS")
        self._format_record.unlink(missing_ok=True)
        for directory in (self._work_dir / "namenode", *self._work_dir.glob("datanode-*")):
            shutil.rmtree(directory, ignore_errors=True)
        return self._spawn(self._namenode, ("-format", "-nonInteractive", "-force"))

    def _after_format(self, child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
        """Start the NameNode after `child` has formatted HDFS; return `child` until then."""
        if child.poll() is None:
            return child
        if child.returncode != 0:
            cause = daemons.failure(self._work_dir / "log" / "namenode", "namenode")
            raise ClusterError(f"HDFS could not be formatted: {cause}.", f"see {self._work_dir / 'log'}.")
        # dlobd's own file, because the NameNode's VERSION file exists before the format is complete
        self._format_record.write_text(f"{len(self._settings.datanode_hosts)}\n")
        self._start(self._namenode)
        return None
