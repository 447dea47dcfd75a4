"""Daemons of a host of the mini-cluster, in the foreground of its container.

    master   NameNode, ResourceManager, and Spark's history server as soon as HDFS accepts writes
    worker   a DataNode and a NodeManager
    edge     no daemon, only the configuration of clients

They start like the daemons of the embedded cluster, from the same templates. Three things differ: they listen on all
interfaces at Hadoop's default ports, because other hosts connect to them; container logs are aggregated into HDFS; and
the NodeManagers publish the version of dlobd on their nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlobd import installation
from dlobd.errors import SetupError, UsageError
from dlobd.hadoop import webhdfs
from dlobd.hadoop.embedded import configuration, daemons, startup
from dlobd.hadoop.embedded.class_path import prepare
from dlobd.hadoop.embedded.configuration import ClusterSettings, DaemonPlan
from dlobd.hadoop.embedded.jars import resolve_jars
from dlobd.hadoop.embedded.java import Java, find_java
from dlobd.hadoop.embedded.processes import MARK, end
from dlobd.hadoop.failures import failures
from dlobd.paths import make_writable, spark_home
from dlobd.process_id import identify

Progress = Callable[[str], None]

ROLES = {"master": ("namenode", "resourcemanager"), "worker": ("datanode", "nodemanager"), "edge": ()}

PORTS = {
    "namenode": {"rpc": 8020, "http": 9870},
    "datanode": {"data": 9866, "http": 9864, "ipc": 9867, "proxy": 9865},
    "resourcemanager": {"client": 8032, "scheduler": 8030, "tracker": 8031, "admin": 8033, "web": 8088},
    "nodemanager": {"rpc": 8041, "localizer": 8040, "http": 8042},
}
"""Hadoop's default ports; but a NodeManager's `rpc` and a DataNode's `proxy` have any free port by default."""

HISTORY_PORT = 18080
"""Default port of Spark's history server."""

ANY = "0.0.0.0"
"""All interfaces of the host. A container is reachable only on its networks and published ports."""

START_DEADLINE_S = 180.0
WATCH_S = 1.0
LOOK_S = 10.0
"""Interval of the health check of each daemon."""

HISTORY_MEMORY_MB = 256
RESERVED_MB = 1024
"""Part of a worker's memory for its two daemons and other processes, which used 0.6 GB in a measurement."""


@dataclass(frozen=True, slots=True)
class Node:
    """Host of the mini-cluster.

    Args:
        role: master, worker or edge.
        name: host name of this host; `master` is the host name of the master.
        work_dir: directory for configuration, logs and the data of HDFS.
        memory_mb, vcores: resources of a worker for containers.
    """

    role: str
    name: str
    master: str
    work_dir: Path
    memory_mb: int = 3072
    vcores: int = 4

    @property
    def settings(self) -> ClusterSettings:
        """Settings of the daemons; workers register themselves, so no host is listed."""
        return ClusterSettings(
            work_dir=self.work_dir,
            datanode_hosts=(),
            nodemanager_hosts=(),
            nodemanager_memory_mb=self.memory_mb,
            nodemanager_vcores=self.vcores,
            log_aggregation=True,
            installed=installation.this(),
        )

    @property
    def here(self) -> list[DaemonPlan]:
        """Daemons of this host."""
        if self.role == "master":
            return self.planned
        return [_plan(kind, self.name, "-0") for kind in ROLES[self.role]]

    @property
    def planned(self) -> list[DaemonPlan]:
        """Daemons in the configuration: those of the master and of this host."""
        masters = [_plan(kind, self.master) for kind in ROLES["master"]]
        return masters if self.role == "master" else [*masters, *self.here]

    @property
    def client_conf_dir(self) -> Path:
        """HADOOP_CONF_DIR."""
        return self.work_dir / "conf" / "client"


def _plan(kind: str, host: str, suffix: str = "") -> DaemonPlan:
    return DaemonPlan(f"{kind}{suffix}", kind, host, PORTS[kind], ANY)


def configure(node: Node) -> None:
    """Write the configuration of this host's daemons and of clients. Raises SetupError."""
    make_writable(node.work_dir)
    configuration.write_configuration(node.settings, node.planned, node.here)


def serve(node: Node, ready: Path, progress: Progress) -> None:
    """Run the daemons of the host until a signal ends this process, then stop them.

    Args:
        ready: file that exists while all daemons are healthy.

    Raises:
        SetupError: Java, jars, memory or disk is missing.
        ClusterError: a daemon did not start, or it ended.
    """
    ready.unlink(missing_ok=True)
    java = find_java()
    jars = resolve_jars(java, progress)
    make_writable(node.work_dir)
    startup.check_memory(node.settings)
    startup.check_disk(node.work_dir)
    startup.prepare_directories(node.work_dir)
    classes = prepare(java, jars, progress)
    configure(node)
    launch = startup.Launch(node.settings, node.planned, java, classes, lambda name, process: None, node.here)
    history = HistoryServer(node, java, progress) if node.role == "master" else None
    started = time.monotonic()
    try:
        launch.run(progress, START_DEADLINE_S)
        ready.touch()
        progress(f"{node.name}: ready after {time.monotonic() - started:.1f} s")
        _watch(node, launch, history, ready, progress)
    except startup.PortClash as clash:
        raise SetupError(f"A port of this host is in use: {clash}.", "stop the program that uses it") from clash
    finally:
        ready.unlink(missing_ok=True)
        _stop([*launch.children, *(history.children if history else [])])


def _watch(node: Node, launch: startup.Launch, history: HistoryServer | None, ready: Path, progress: Progress) -> None:
    """Check the daemons until a signal arrives; raise ClusterError when a daemon has ended."""
    manager = next(daemons.web_address(daemon) for daemon in node.planned if daemon.kind == "resourcemanager")
    looked = time.monotonic()
    while True:
        launch.check()
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            if history:
                history.start()
            silent = [daemon.name for daemon in node.here if not daemons.is_ready(daemon, manager)]
            if silent and ready.exists():
                progress(f"{node.name}: not ready: {', '.join(silent)}")
                ready.unlink()
            elif not silent and not ready.exists():
                progress(f"{node.name}: ready again")
                ready.touch()
        time.sleep(WATCH_S)


def _stop(children: list[subprocess.Popen[bytes]]) -> None:
    """Stop the daemons in the order of `EmbeddedCluster.stop`: NodeManager first, NameNode last. Processes that do not
    end are killed."""
    for child in reversed(children):
        if (process := identify(child.pid)) is not None:
            end([process], 2)
        child.wait()


class HistoryServer:
    """Spark's history server beside a NameNode. The container continues if it ends, because no job needs it."""

    def __init__(self, node: Node, java: Java, progress: Progress) -> None:
        self.children: list[subprocess.Popen[bytes]] = []
        self._node = node
        self._java = java
        self._progress = progress
        self._namenode = next(daemon for daemon in node.here if daemon.kind == "namenode")

    def start(self) -> None:
        """Start the server after HDFS accepts writes, because it ends if its directory is missing."""
        if self.children or daemons.in_safe_mode(self._namenode):
            return
        user = configuration.user_name()
        events = f"/user/{user}/dlobd/spark-events"
        try:
            webhdfs.Client(f"http://{daemons.web_address(self._namenode)}", user, timed=False).makedirs(events)
        except failures() as error:
            self._progress(f"the history server waits for HDFS: {webhdfs.words(error)}")
            return
        self.children.append(self._started(f"hdfs://{self._namenode.host}:{self._namenode.ports['rpc']}{events}"))
        self._progress(f"history server: port {HISTORY_PORT}")

    def _started(self, events: str) -> subprocess.Popen[bytes]:
        options = {
            "spark.history.fs.logDirectory": events,
            "spark.history.ui.port": str(HISTORY_PORT),
            "dlobd.log": "/dev/null",  # no job, so no evidence
            # every half minute, because its requests to HDFS disturb jobs
            "spark.history.fs.update.interval": "30s",
        }
        work_dir = self._node.work_dir
        env = daemons.environment(self._java, work_dir, self._node.name) | {
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(configuration.spark_conf_dir(work_dir)),
            "SPARK_DAEMON_MEMORY": f"{HISTORY_MEMORY_MB}m",
            "SPARK_DAEMON_JAVA_OPTS": f"{MARK}{work_dir} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_HISTORY_OPTS": " ".join(f"-D{key}={value}" for key, value in options.items()),
            "SPARK_LOCAL_IP": ANY,
        }
        command = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.history.HistoryServer"]
        return daemons.start_process(command, env, work_dir / "log" / "history", "history")


def end_on_signals() -> None:
    """Make SIGTERM end this process like Ctrl-C; the default action would leave the daemons running."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the stop
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def run_command(command: list[str], node: Node) -> None:
    """Replace this process by a command of the user, with the configuration of the cluster.

    Raises:
        UsageError: the command cannot be run.
    """
    try:
        os.execvpe(command[0], command, {**os.environ, "HADOOP_CONF_DIR": str(node.client_conf_dir)})
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}.", "dlobd --help") from error
