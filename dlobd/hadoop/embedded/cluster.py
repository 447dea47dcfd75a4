"""The embedded cluster: starts its daemons in parallel, reports their state, and stops them."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from dlobd.errors import Busy, ClusterError, SetupError
from dlobd.hadoop.embedded import configuration, daemons, startup
from dlobd.hadoop.embedded.class_path import ClassPath, prepare
from dlobd.hadoop.embedded.configuration import ClusterSettings, DaemonPlan
from dlobd.hadoop.embedded.jars import HADOOP_VERSION, resolve_jars
from dlobd.hadoop.embedded.java import Java, find_java
from dlobd.hadoop.embedded.ports import choose_ports
from dlobd.hadoop.embedded.processes import containers_of, daemons_of, end, rss_bytes
from dlobd.hadoop.embedded.state import ClusterState, WorkDirLock, read_state, write_state
from dlobd.hadoop.embedded.watchdog import end_everything, start_watchdog
from dlobd.hadoop.web import HadoopWeb, containers
from dlobd.process_id import ProcessId, identify
from dlobd.tracing import clock

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 9.0
PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the cluster. `web` has the web pages for users; NameNode and DataNodes serve only JMX."""

    fs_uri: str
    webhdfs_url: str
    rm_url: str
    nm_urls: tuple[str, ...]
    dn_urls: tuple[str, ...]
    web: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """Status of a daemon. `pid` is None and `ready` False if it does not run."""

    name: str
    pid: int | None
    alive: bool
    ready: bool
    rss_bytes: int
    web_url: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Status of the cluster: `state` is running, incomplete or stopped."""

    state: str
    daemons: tuple[DaemonStatus, ...]
    safe_mode: bool
    applications: int
    stays: bool
    up_s: float


class LostDaemon(ClusterError):
    """Error: a daemon of the running cluster has died."""


class EmbeddedCluster:
    """Cluster of one NameNode, DataNodes, one ResourceManager and NodeManagers, each a JVM on loopback.

    A work directory has at most one running cluster, which one command uses at a time. The daemons always end with the
    process that started them, unless it called `start` with `stays`.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        """Raise SetupError if Hadoop cannot use the path of the work directory."""
        self.settings = replace(settings, work_dir=configuration.work_dir_name(settings.work_dir))
        self._lock = WorkDirLock(self.work_dir)
        self._state: ClusterState | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._watchdog: subprocess.Popen[bytes] | None = None

    @classmethod
    def attach(cls, work_dir: Path, hold: bool = True) -> Self:
        """Return the cluster that runs in `work_dir`; with `hold`, reserve it for this command until `release`, `stop`
        or the end of the process, else only its state can be read. Raises ClusterError if no cluster runs there, and
        with `hold` LostDaemon if one of its daemons has died, Busy if another command uses it."""
        cluster = cls(ClusterSettings(work_dir))
        if hold:
            cluster._lock.acquire()
        try:
            state = read_state(cluster.work_dir)
            alive = state.alive() if state else {}
            if state is None or not alive:
                raise ClusterError(f"No cluster is running in {cluster.work_dir}.", "dlobd cluster up")
            if hold and len(alive) < len(state.daemons):
                dead = ", ".join(daemon.name for daemon in state.daemons if daemon.name not in alive)
                raise LostDaemon(f"The cluster in {cluster.work_dir} lost {dead}.", "dlobd cluster down, then up")
        except BaseException:
            cluster.release()
            raise
        cluster._state = state
        return cluster

    # ---- use

    @property
    def work_dir(self) -> Path:
        return self.settings.work_dir

    @property
    def client_conf_dir(self) -> Path:
        return self.work_dir / "conf" / "client"

    @property
    def java(self) -> Java:
        """The Java of the daemons, also for JAVA_HOME of spark-submit."""
        state = self._running()
        return Java(Path(state.java_home), state.java_version, state.java_origin)

    @property
    def own_settings(self) -> Mapping[str, str]:
        """Hadoop settings of the user."""
        return self._running().own

    @property
    def user(self) -> str:
        """The user name in HDFS and YARN."""
        return configuration.user_name()

    @property
    def endpoints(self) -> Endpoints:
        """Addresses of the daemons. Raises ClusterError if the cluster was not started."""
        urls = {daemon.name: f"http://{daemons.web_address(daemon)}" for daemon in self._running().daemons}
        rpc = self._one("namenode").ports["rpc"]
        return Endpoints(
            fs_uri=f"hdfs://{configuration.LOOPBACK}:{rpc}",
            webhdfs_url=urls["namenode"],
            rm_url=urls["resourcemanager"],
            nm_urls=tuple(url for name, url in urls.items() if name.startswith("nodemanager")),
            dn_urls=tuple(url for name, url in urls.items() if name.startswith("datanode")),
            web={
                "ResourceManager": urls["resourcemanager"] + "/cluster",
                **{f"NodeManager {n[12:]}": f"{url}/node" for n, url in urls.items() if n.startswith("nodemanager")},
                "NameNode JMX": urls["namenode"] + "/jmx",
            },
        )

    def log_files(self) -> dict[str, Path]:
        """Return the paths of the daemons' logs by name, and of their separate logs: namenode-audit,
        resourcemanager-audit, datanode-0-clienttrace, nodemanager-0-audit. Separate logs exist only after their first
        record."""
        extra = {
            "namenode": ("audit", "hdfs-audit.log"),
            "datanode": ("clienttrace", "clienttrace.log"),
            "resourcemanager": ("audit", "rm-audit.log"),
            "nodemanager": ("audit", "nm-audit.log"),
        }
        files: dict[str, Path] = {}
        for daemon in self._running().daemons:
            directory = self.work_dir / "log" / daemon.name
            files[daemon.name] = directory / f"{daemon.name}.log"
            suffix, file_name = extra[daemon.kind]
            files[f"{daemon.name}-{suffix}"] = directory / file_name
        return files

    def container_log_dirs(self, application_id: str) -> dict[str, Path]:
        """Return the log directories of an application's containers on all NodeManagers, ordered by container ID."""
        directories = self.work_dir.glob(f"nodemanager-*/userlogs/{application_id}/container_*")
        return {path.name: path for path in sorted(directories, key=lambda path: path.name) if path.is_dir()}

    def daemons_now(self) -> list[dict[str, object]]:
        """Return name, kind, host and ports of each daemon, and its process state."""
        alive = self._alive()
        return [{**asdict(daemon), "alive": daemon.name in alive} for daemon in self._running().daemons]

    def memory(self) -> dict[str, int]:
        """Return the resident bytes of each running daemon."""
        return {name: rss_bytes(process) for name, process in self._alive().items()}

    def daemon_pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._alive().items()}

    def status(self) -> ClusterStatus:
        """Return the status from requests to all daemons, in a few seconds. Raises ClusterError if none is started."""
        state, alive = self._running(), self._alive()
        manager = daemons.web_address(self._one("resourcemanager"))
        listed = []
        for daemon in state.daemons:
            runs = daemon.name in alive
            listed.append(
                DaemonStatus(
                    name=daemon.name,
                    pid=alive[daemon.name].pid if runs else None,
                    alive=runs,
                    ready=runs and daemons.is_ready(daemon, manager),
                    rss_bytes=rss_bytes(alive[daemon.name]) if runs else 0,
                    web_url=f"http://{daemons.web_address(daemon)}",
                )
            )
        answer = HadoopWeb.get_json(f"http://{manager}/ws/v1/cluster/metrics", daemons.TIMEOUT_S) or {}
        metrics = answer.get("clusterMetrics", {})
        all_ready = all(daemon.ready for daemon in listed)
        return ClusterStatus(
            state="running" if all_ready else "incomplete" if alive else "stopped",
            daemons=tuple(listed),
            safe_mode=daemons.in_safe_mode(self._one("namenode")),
            applications=int(metrics.get("appsRunning", 0)) + int(metrics.get("appsPending", 0)),
            stays=state.stays,
            up_s=max(0.0, time.time() - state.started_wall_s),
        )

    # ---- start

    def start(self, report: Callable[[str], None], timeout_s: float = START_TIMEOUT_S, stays: bool = False) -> None:
        """Start every daemon, and return when all are ready for a job. HDFS keeps its content between starts.

        `timeout_s` begins with the start of the first daemon, after the download of jars. If `stays`, the daemons
        outlive this process until another process calls `stop`.

        Raises Busy if the work directory is in use or a cluster stays in it, SetupError if Java, jars, memory, disk or
        a port is missing, ClusterError if a daemon died or was not ready in time.
        """
        self._lock.acquire()
        try:
            self._end_leftovers(report)
            java = find_java()
            report(f"Java {java.version} ({java.origin})")
            jars = resolve_jars(java, report)
            startup.check_memory(self.settings)
            startup.prepare_directories(self.work_dir)
            startup.check_disk(self.work_dir)
            classes = prepare(java, jars, report)
            self._start_with_ports(java, classes, report, timeout_s, stays)
        except BaseException:
            if self._state is None:
                self.release()
            else:
                end_everything(self.work_dir)
                self._forget()
            raise
        if stays:
            self._dismiss_watchdog()

    def _end_leftovers(self, report: Callable[[str], None]) -> None:
        state = read_state(self.work_dir)
        if state and state.stays and state.ready and state.alive():
            raise Busy(f"A cluster is up in {self.work_dir}.", "use it, or stop it with dlobd cluster down")
        left = [*daemons_of(self.work_dir), *containers_of(self.work_dir)]
        if left:
            report(f"stopping {len(left)} processes of a cluster whose dlobd command has ended")
            end_everything(self.work_dir)

    def _start_with_ports(
        self, java: Java, classes: ClassPath, report: Callable[[str], None], timeout_s: float, stays: bool
    ) -> None:
        owner = identify(os.getpid())
        for attempt in range(1, PORT_ATTEMPTS + 1):
            ports = choose_ports(configuration.port_hosts(self.settings), self.settings.port_base)
            planned = configuration.plan(self.settings, ports)
            configuration.write_configuration(self.settings, planned)
            self._change_state(
                ClusterState(
                    domain=clock.domain(),
                    hadoop=HADOOP_VERSION,
                    java_home=str(java.home),
                    java_version=java.version,
                    java_origin=java.origin,
                    stays=stays,
                    ready=False,
                    owner=owner,
                    started_wall_s=time.time(),
                    daemons=tuple(planned),
                    own=self.settings.own,
                )
            )
            if owner is not None and self._watchdog is None:
                self._watchdog = start_watchdog(self.work_dir, owner)
            launch = startup.Launch(self.settings, planned, java, classes, self._record)
            self._children = launch.children
            try:
                launch.run(report, timeout_s)
            except startup.PortClash as clash:
                end_everything(self.work_dir)
                self._reap()
                if self.settings.port_base is not None or attempt == PORT_ATTEMPTS:
                    raise SetupError(
                        f"A port was taken while the daemons started: {clash}.", "choose another DLOBD_PORT_BASE."
                    ) from clash
                report("another program took a port: restarting with other ports")
                startup.prepare_directories(self.work_dir)
            else:
                self._change_state(replace(self._running(), ready=True))
                return

    def _record(self, name: str, process: ProcessId) -> None:
        state = self._running()
        self._change_state(replace(state, processes={**state.processes, name: process}))

    def _change_state(self, state: ClusterState) -> None:
        self._state = state
        write_state(self.work_dir, state)

    # ---- stop

    def stop(self, report: Callable[[str], None] | None = None) -> None:
        """Stop every daemon and container of the work directory, in an order that allows a clean shutdown.

        Remaining processes are killed after 10 s. HDFS's content, logs and configuration stay.
        Raises Busy if another command uses the cluster.
        """
        self._lock.acquire()
        if report:
            report("waiting for the cluster's daemons to end")
        deadline = time.monotonic() + STOP_TIMEOUT_S
        self._state = read_state(self.work_dir) or self._state
        alive = self._state.alive() if self._state else {}
        running = [daemon for daemon in self._state.daemons if daemon.name in alive] if self._state else []
        managers = [daemon for daemon in running if daemon.kind == "nodemanager"]
        # a NodeManager takes 17 s to end after an application; without containers it can be killed safely
        drained = time.monotonic() + 3
        urls = [f"http://{daemons.web_address(manager)}" for manager in managers]
        while any(containers(url, daemons.TIMEOUT_S) for url in urls) and time.monotonic() < drained:
            time.sleep(0.2)
        end([alive[manager.name] for manager in managers], 1)
        for container in containers_of(self.work_dir):
            container.kill(signal.SIGKILL)
        for kind in ("resourcemanager", "datanode", "namenode"):
            group = [alive[daemon.name] for daemon in running if daemon.kind == kind]
            end(group, max(0.2, min(2.0, deadline - time.monotonic())))
        end_everything(self.work_dir)
        self._forget()

    def release(self) -> None:
        """Release the lock, so that other commands can use the cluster."""
        self._lock.release()

    def _forget(self) -> None:
        (self.work_dir / "state.json").unlink(missing_ok=True)
        self._reap()
        self._dismiss_watchdog()
        shutil.rmtree(self.work_dir / "tmp", ignore_errors=True)
        self._state = None
        self.release()

    def _dismiss_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.terminate()
            self._watchdog.wait()
            self._watchdog = None

    def _reap(self) -> None:
        for child in self._children:
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:  # the process hangs in the kernel; init reaps it
                pass
        self._children.clear()

    # ---- the plan

    def _running(self) -> ClusterState:
        if self._state is None:
            raise ClusterError(f"The cluster in {self.work_dir} is not started.", "dlobd cluster up")
        return self._state

    def _alive(self) -> dict[str, ProcessId]:
        """Return the running daemons from the state file: another command may have restarted a daemon."""
        return (read_state(self.work_dir) or self._running()).alive()

    def _one(self, kind: str) -> DaemonPlan:
        return next(daemon for daemon in self._running().daemons if daemon.kind == kind)
