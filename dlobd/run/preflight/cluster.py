"""Checks of an external Hadoop cluster: its daemons answer, its nodes have this dlobd, and the job fits."""

from collections.abc import Callable
from itertools import islice

from dlobd import installation
from dlobd.errors import SetupError, UsageError
from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.site_files import HadoopConf
from dlobd.hadoop.web import MAX_NODES, HadoopWeb, active_namenode, active_resourcemanager, running_nodes
from dlobd.installation import Installed
from dlobd.run.preflight import Absent, capacity
from dlobd.schema import Runnable

VERSION, PYTHON = "yarn.nodemanager.dlobd.version", "yarn.nodemanager.dlobd.python"
"""Properties of yarn-site.xml on nodes that have dlobd; `yarn/base/installed.properties` sets them."""

GPU = "yarn.io/gpu"
"""Name of YARN's resource type for GPUs."""

ANSWER_S = (3.0, 5.0)
"""Timeouts of `dlobd doctor` for connecting and between two bytes. They are short because the user is waiting."""


def nodes_have_dlobd(conf: HadoopConf) -> bool:
    """Return True if the configuration declares dlobd on the nodes, so that nothing must be uploaded."""
    return bool(conf.get(VERSION))


def check_nodes(web: HadoopWeb) -> None:
    """Ask at most MAX_NODES NodeManagers for version and path of their dlobd, which must equal this machine's.
    Raises UsageError if a node has another dlobd or does not report it."""
    here = installation.this()
    for host, url in islice(web.nodes(), MAX_NODES):
        version, python = (web.property(url, key) for key in (VERSION, PYTHON))
        there = Installed(version or "", python or "")
        if there != here:
            report = f"has {there}" if there.version else f"does not report its dlobd at {url}/conf"
            raise UsageError(
                f"Node {host} {report}, but this machine has {here}: the job would run with another dlobd.",
                "run the same image on both sides (docker compose build, then up), or use --archive FILE",
            )


def check_capacity(experiment: Runnable, web: HadoopWeb) -> str:
    """Check that the cluster can hold the job while it is idle.

    YARN's API does not report whether its scheduler counts vcores. So only the largest container is checked.
    Returns a note if the job must wait for running applications, else an empty string. Raises SetupError if the job
    never fits.
    """
    nodes = web.node_resources()
    if not nodes:
        return ""  # the ResourceManager does not report its nodes
    largest_mb = web.setting("yarn.scheduler.maximum-allocation-mb") or max(node.memory_mb for node in nodes)
    maximum = capacity.Node(largest_mb, web.setting("yarn.scheduler.maximum-allocation-vcores"))
    minimum_mb = web.setting("yarn.scheduler.minimum-allocation-mb") or 1
    idle = [capacity.Node(node.memory_mb, None) for node in nodes]
    capacity.check_yarn(experiment, capacity.Cluster(idle, minimum_mb, maximum))
    if wanted := experiment.workers * capacity.gpus_of(experiment):
        gpus = [node.resources[GPU] for node in nodes if GPU in node.resources]
        if not gpus:
            raise SetupError(f"device gpu: YARN at {web.rm_url} has no resource type {GPU}.", capacity.ON_CPU)
        if wanted > sum(gpus):
            raise SetupError(f"{wanted} workers need {wanted} GPUs, but YARN has {sum(gpus)}.", "lower workers")
    free = [capacity.Node(node.free_memory_mb, None) for node in nodes]
    room = capacity.room(experiment, capacity.Cluster(free, minimum_mb, maximum))
    if experiment.workers > room:
        return f"the cluster is busy: only {room} of {experiment.workers} executors fit until other jobs end"
    return ""


def _namenode(conf: HadoopConf) -> str:
    address, home = active_namenode(conf, user_name(), ANSWER_S)
    return f"{address.netloc} ({address.key}) answers; home of {user_name()} is {home}"


def _resourcemanager(conf: HadoopConf) -> str:
    address, info = active_resourcemanager(conf, ANSWER_S)
    version = info.get("hadoopVersion", "of unknown version")
    return f"{address.netloc} ({address.key}) answers, Hadoop {version}"


def _nodemanagers(conf: HadoopConf) -> str:
    address, _ = active_resourcemanager(conf, ANSWER_S)
    count = running_nodes(address, ANSWER_S)
    if not count:
        what = "no NodeManager is running" if count == 0 else f"{address.netloc} does not report their number"
        raise SetupError(what, f"see {address.url}/cluster/nodes")
    return f"{count} NodeManagers are running"


def _dlobd_on_nodes(conf: HadoopConf) -> str:
    if not nodes_have_dlobd(conf):
        return "dlobd is uploaded before the first run"
    check_nodes(HadoopWeb.connect(conf, user_name()))
    return f"each node has {installation.this()}"


def _container_logs(conf: HadoopConf) -> str:
    key = "yarn.log-aggregation-enable"
    if conf.get(key).lower() == "true":
        return f"{key}=true: YARN stores container logs in HDFS"
    what = f"{key} is not true: NodeManagers delete the logs after some time"
    raise Absent(what, "no action needed for dlobd run; run dlobd collect soon after a manual submission ends")


PARTS: tuple[tuple[str, Callable[[HadoopConf], str]], ...] = (
    ("NameNode", _namenode),
    ("ResourceManager", _resourcemanager),
    ("NodeManagers", _nodemanagers),
    ("dlobd there", _dlobd_on_nodes),
    ("container logs", _container_logs),
)
"""Checks of `dlobd doctor` for a cluster, by part."""
