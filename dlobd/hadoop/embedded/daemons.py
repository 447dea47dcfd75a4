"""Command line and readiness of a Hadoop daemon, and the cause of its end."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlobd.errors import ClusterError
from dlobd.hadoop import web
from dlobd.hadoop.embedded.class_path import ClassPath
from dlobd.hadoop.embedded.configuration import DaemonPlan
from dlobd.hadoop.embedded.java import Java
from dlobd.hadoop.embedded.processes import MARK
from dlobd.hadoop.web import HadoopWeb, JsonObject, Timeout

MAIN_CLASSES = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}

NAMENODE_INFO = "Hadoop:service=NameNode,name=NameNodeInfo"

TIMEOUT_S: Timeout = (5.0, 5.0)


def java_command(
    java: Java, work_dir: Path, daemon: DaemonPlan, classes: ClassPath, heap_mb: int, arguments: Sequence[str]
) -> list[str]:
    """Return a daemon's command line. Only the first JIT tier is used, which halves the start-up time."""
    log_dir = work_dir / "log" / daemon.name
    return [
        str(java.command),
        f"{MARK}{work_dir}",
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={work_dir / 'tmp'}",
        f"-Dhadoop.log.dir={log_dir}",
        f"-Dyarn.log.dir={log_dir}",
        f"-Dhadoop.log.file={daemon.name}.log",
        *classes.options(work_dir / "conf" / daemon.name),
        MAIN_CLASSES[daemon.kind],
        *arguments,
    ]


def environment(java: Java, work_dir: Path, host: str) -> dict[str, str]:
    """Return a daemon's environment. Containers inherit a NodeManager's variables of yarn.nodemanager.env-whitelist.
    Raises ClusterError if the name of this host has no address."""
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise ClusterError(f"This host's name {host} has no address: {error}.", "check DNS or /etc/hosts") from error
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(work_dir / "home"),
        "USER": os.environ.get("USER", ""),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TZ": "UTC",
        "JAVA_HOME": str(java.home),
        "HADOOP_CONF_DIR": str(work_dir / "conf" / "client"),
        "TMPDIR": str(work_dir / "tmp"),
        # otherwise Spark and TensorFlowOnSpark advertise the address of the first network interface
        "SPARK_LOCAL_IP": address,
        "TFOS_BIND_IP": address,
    }


def start_process(command: Sequence[str], env: Mapping[str, str], log_dir: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a JVM in a new session, so that Ctrl-C reaches only the command that owns the cluster."""
    log_dir.mkdir(parents=True, exist_ok=True)
    with (log_dir / f"{name}.out").open("ab") as output:
        return subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=log_dir,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def is_ready(daemon: DaemonPlan, resourcemanager: str, timeout_s: Timeout = TIMEOUT_S) -> bool:
    """Return True if a daemon is ready.

    A DataNode is asked directly, because the NameNode lists a dead DataNode until its heartbeat expires. A NodeManager
    is ready when the ResourceManager at this web address can assign containers to it. A NameNode in safe mode counts as
    ready: safe mode ends after the last DataNode has reported (`in_safe_mode`).
    """
    if daemon.kind == "namenode":
        return "Safemode" in _bean(daemon, NAMENODE_INFO, timeout_s)
    if daemon.kind == "datanode":
        info = _bean(daemon, "Hadoop:service=DataNode,name=DataNodeInfo", timeout_s)
        actors = json.loads(info.get("BPServiceActorInfo") or "[]")
        return bool(actors) and all(actor.get("ActorState") == "RUNNING" for actor in actors)
    if daemon.kind == "resourcemanager":
        answer = HadoopWeb.get_json(f"http://{resourcemanager}/ws/v1/cluster/info", timeout_s) or {}
        info = answer.get("clusterInfo", {})
        return bool(info.get("state") == "STARTED" and info.get("haState") == "ACTIVE")
    # ask the node for its ID: hosts may have several names, and several nodes use the same port
    answer = HadoopWeb.get_json(f"http://{web_address(daemon)}/ws/v1/node/info", timeout_s) or {}
    own = (answer.get("nodeInfo") or {}).get("id")
    nodes = web.nodes(f"http://{resourcemanager}", timeout_s) if own else []
    return any(node.get("state") == "RUNNING" and node.get("id") == own for node in nodes)


def in_safe_mode(namenode: DaemonPlan, timeout_s: Timeout = TIMEOUT_S) -> bool:
    """Return True if HDFS refuses writes or does not answer."""
    return bool(_bean(namenode, NAMENODE_INFO, timeout_s).get("Safemode", "no answer"))


def _bean(daemon: DaemonPlan, query: str, timeout_s: Timeout) -> JsonObject:
    """Return the first matching JMX bean of a daemon; empty if there is none."""
    return next(iter(web.beans(f"http://{web_address(daemon)}", query, timeout_s)), {})


def web_address(daemon: DaemonPlan) -> str:
    """Return host:port of a daemon's web interface."""
    return f"{daemon.host}:{daemon.ports.get('web') or daemon.ports['http']}"


def failure(log_dir: Path, name: str) -> str:
    """Return the line of a dead daemon's log, or else of its output, that most likely names the cause."""
    for path in (log_dir / f"{name}.log", log_dir / f"{name}.out"):
        try:
            lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            continue
        clashes = [line for line in lines if is_port_clash(line)]
        # the last exception is the innermost cause; stack lines are not causes
        causes = [line for line in lines if re.search(r"(Exception|Error)\b", line) and not line.startswith("at ")]
        candidates = clashes or causes or (lines if path.suffix == ".out" else [])
        if candidates:
            return re.sub(r"^\d+ \S+ [A-Z]+ ", "", candidates[-1])[:300].rstrip(".")
    return "its log is empty"


def is_port_clash(cause: str) -> bool:
    """Return True if a daemon ended because its port was taken between the check and its bind."""
    return "BindException" in cause or "Address already in use" in cause
