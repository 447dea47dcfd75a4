"""Checks what this machine can do before a run: each part is ok, absent or broken, with the next step.

Absent parts are supplied by dlobd or not needed; broken parts would make a run fail. For an external cluster the parts
are those that a run there needs, and the cluster's own web addresses. Without RDMA a run goes over Ethernet: what
`rdma_checks` finds broken matters where it is required.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from dlobd import installation
from dlobd.axes import DATASETS
from dlobd.errors import ClusterError, DlobdError, SetupError
from dlobd.experiment.files import load
from dlobd.hadoop.embedded import configuration, startup
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import default_settings, user_name
from dlobd.hadoop.embedded.jars import JARS
from dlobd.hadoop.embedded.java import find_java
from dlobd.hadoop.embedded.ports import choose_ports, port_base
from dlobd.hadoop.site_files import HadoopConf
from dlobd.hadoop.web import HadoopWeb, active_namenode, active_resourcemanager, running_nodes
from dlobd.job.datasets.base import dataset_of
from dlobd.paths import cache_dir, cluster_dir, make_writable, sha256_of
from dlobd.run import rdma_checks
from dlobd.run.deploy import nodes
from dlobd.run.diagnosis import Diagnosis
from dlobd.run.memory_check import asked_mb
from dlobd.tracing import clock


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that a run opens for others to connect to, by whom, where, and who may use it."""

    program: str
    address: str
    protected: str


CHANNEL = "the channel's address; without a device: 127.0.0.1"

LISTENERS = (
    Listener("HDFS's and YARN's daemons", "127.0.0.1", "nothing (Hadoop's simple authentication)"),
    Listener("Spark's driver and executors", "127.0.0.1", "nothing, unless spark.authenticate is set"),
    Listener(
        "TensorFlowOnSpark's reservation server, which unpickles what it gets",
        "127.0.0.1; tfos-stock: 0.0.0.0",
        "nothing",
    ),
    Listener("TensorFlowOnSpark's queue manager", "a Unix socket; for ps and evaluator: 0.0.0.0", "its own key"),
    Listener(
        "TensorFlow's gRPC server in each rank, with exchanges of TensorFlow's own",
        "0.0.0.0, fixed by TensorFlow",
        "nothing",
    ),
    Listener("dlobd in the driver: clock; with barrier also the ranks' log lines", "127.0.0.1", "the run's secret"),
    Listener(
        "dlobd in the driver, with exchanges of dlobd's own: key-value store; with mpi also PMI",
        "127.0.0.1",
        "the run's secret",
    ),
    Listener(
        "a rank's channel, with exchanges of dlobd's own: sockets and grpc", CHANNEL, "HMAC with the run's secret"
    ),
    Listener("the same: ucx and mpi", CHANNEL, "nothing"),
)


def listeners(conf_dir: Path | None = None) -> tuple[Listener, ...]:
    """What a run opens here, or of an external cluster here and on its nodes; its daemons are its own."""
    if conf_dir is None:
        return LISTENERS
    reached = "each host's address in the cluster"
    return tuple(replace(one, address=one.address.replace("127.0.0.1", reached)) for one in LISTENERS[1:])


def examine(conf_dir: Path | None = None, require: Sequence[str] = (), allow_soft: bool = False) -> list[Diagnosis]:
    """All parts, in the order in which a run needs them.

    Args:
        conf_dir: HADOOP_CONF_DIR of an external cluster, where the run is to be. It is asked for at most
            `ANSWER_S` a request, so that this ends within a minute also where nothing answers.
        require: channels that must be there, TRANSPORT[@DEVICE].
        allow_soft: an RDMA device in software will do.

    Raises:
        UsageError: `conf_dir` cannot be read, or is of a cluster that dlobd cannot use; `require` is no channel.
    """
    specs = [rdma_checks.channel(text) for text in require]
    conf = None if conf_dir is None else HadoopConf.read(conf_dir)
    if conf is not None:
        conf.check_supported()
    here = [_guarded(part, look) for part, look in PARTS if conf is None or part not in EMBEDDED]
    rdma = rdma_checks.examine()
    here += [*rdma, *(rdma_checks.required(spec, rdma, allow_soft) for spec in specs)]
    if conf is None:
        return here
    return here + [_guarded(part, lambda look=look: look(conf)) for part, look in THERE]  # type: ignore[misc]


def exit_code(diagnoses: Sequence[Diagnosis]) -> int:
    """What a run would end with now, as far as this tells: 3 for this machine, 4 for the external cluster."""
    needed = [diagnosis for diagnosis in diagnoses if not rdma_checks.is_optional(diagnosis)]
    broken = {diagnosis.part for diagnosis in needed if diagnosis.verdict == "broken"}
    if broken - {part for part, _ in THERE}:
        return SetupError.exit_code
    return ClusterError.exit_code if broken else 0


def _guarded(part: str, look: Callable[[], Diagnosis]) -> Diagnosis:
    try:
        return look()
    except DlobdError as error:
        return Diagnosis(part, "broken", error.what, error.remedy)
    except OSError as error:
        return Diagnosis(part, "broken", f"{type(error).__name__}: {error}", "fix this, then run dlobd doctor again")


def _python() -> Diagnosis:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Diagnosis(
            "Python", "broken", f"{version}; 3.11, 3.12 or 3.13 is required", "install one of these, and dlobd with it"
        )
    return Diagnosis("Python", "ok", f"{version}, {sys.executable}")


def _packages() -> Diagnosis:
    missing, found = [], []
    for name in ("pyspark", "tensorflow", "tensorflowonspark"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Diagnosis("packages", "broken", f"{', '.join(missing)} not installed", "reinstall dlobd with pip")
    return Diagnosis("packages", "ok", ", ".join(found))


def _java() -> Diagnosis:
    java = find_java()
    return Diagnosis("Java", "ok", f"{java.version} ({java.origin}), {java.home}")


def _jars() -> Diagnosis:
    own = os.environ.get("DLOBD_JARS")
    directory = Path(own).expanduser() if own else cache_dir() / "jars"
    missing = [jar for jar in JARS if not (directory / jar.file_name).is_file()]
    if missing:
        what = f"{len(missing)} of {len(JARS)} are missing from {directory}"
        if own:
            return Diagnosis("Hadoop jars", "broken", what, "put them there, or unset DLOBD_JARS")
        size_mb = sum(jar.size_bytes for jar in missing) / 1e6
        return Diagnosis("Hadoop jars", "absent", f"{what} ({size_mb:.0f} MB)", "nothing; the first run downloads them")
    wrong = [jar.file_name for jar in JARS if sha256_of(directory / jar.file_name) != jar.sha256]
    if wrong:
        remedy = "replace them, or unset DLOBD_JARS" if own else "dlobd clean --yes; the next run downloads them again"
        return Diagnosis("Hadoop jars", "broken", f"wrong sha256 for {', '.join(wrong)} in {directory}", remedy)
    return Diagnosis("Hadoop jars", "ok", f"{len(JARS)} with correct sha256 in {directory}")


def _memory() -> Diagnosis:
    settings = default_settings()
    startup.check_memory(settings)
    needed_mb = sum(asked_mb(load("softmax-mnist")).values())
    available_mb = startup.available_memory_bytes() >> 20
    if needed_mb > available_mb:
        return Diagnosis(
            "memory", "broken", f"{available_mb} MB available; the main job needs {needed_mb} MB",
            "free memory, or run softmax-mnist with --set workers=1",
        )  # fmt: skip
    return Diagnosis(
        "memory", "ok", f"{available_mb} MB available; the main job needs {needed_mb} MB besides the daemons"
    )


def _disk() -> Diagnosis:
    make_writable(cache_dir())
    startup.check_disk(cache_dir())
    return Diagnosis("disk", "ok", f"{shutil.disk_usage(cache_dir()).free >> 20} MB free in {cache_dir()}")


def _ports() -> Diagnosis:
    hosts = configuration.port_hosts(default_settings())
    base = port_base()
    if _running() and base is not None:
        return Diagnosis("ports", "ok", f"{len(hosts)} ports from {base} are in use by the running cluster")
    first = choose_ports(hosts, base)[0]
    return Diagnosis("ports", "ok", f"{len(hosts)} consecutive free ports, for example from {first}")


def _data() -> Diagnosis:
    sizes = 0
    main = load("softmax-mnist")
    for row in DATASETS:
        if row.reason() is None and not row.package:
            dataset = dataset_of(replace(main, dataset=row.name))
            next(dataset.chunks("test", range(1), 1))
            sizes += sum(path.stat().st_size for path in dataset.files())
    return Diagnosis("data sets", "ok", f"{sizes / 1e6:.1f} MB, checksums correct")


def _running() -> EmbeddedCluster | None:
    try:
        return EmbeddedCluster.attach(cluster_dir(), hold=False)
    except ClusterError:
        return None


def _cluster() -> Diagnosis:
    cluster = _running()
    if cluster is None:
        return Diagnosis(
            "cluster", "absent", "none is running", "nothing; a run starts its own. To keep one: dlobd cluster up"
        )
    status = cluster.status()
    dead = [daemon.name for daemon in status.daemons if not daemon.ready]
    if dead or status.safe_mode:
        why = f"{', '.join(dead)} not ready" if dead else "the NameNode is in safe mode"
        return Diagnosis("cluster", "broken", why, "dlobd cluster down, then up")
    return Diagnosis("cluster", "ok", f"up {status.up_s:.0f} s, {status.applications} applications")


def _clocks() -> Diagnosis:
    resolution_ns = round(time.get_clock_info("monotonic").resolution * 1e9)
    anchor = clock.anchor()
    what = f"monotonic clock resolution {resolution_ns} ns; wall clock paired with it to {anchor.error_ns} ns"
    if "unknown" in anchor.domain:
        return Diagnosis("clocks", "broken", f"{what}; boot id or time namespace cannot be read", "mount /proc")
    return Diagnosis("clocks", "ok", what)


def _pidfd() -> Diagnosis:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        raise SetupError(f"this kernel has no pidfd_open ({error}).", "use Linux 5.3 or newer") from error
    return Diagnosis("kernel", "ok", f"{os.uname().release}, pidfd")


# ---- an external cluster


def _namenode(conf: HadoopConf) -> Diagnosis:
    address, home = active_namenode(conf, user_name(), ANSWER_S)
    return Diagnosis("NameNode", "ok", f"{address.netloc} ({address.key}) answers; home of {user_name()} is {home}")


def _resourcemanager(conf: HadoopConf) -> Diagnosis:
    address, info = active_resourcemanager(conf, ANSWER_S)
    version = info.get("hadoopVersion", "of unknown version")
    return Diagnosis("ResourceManager", "ok", f"{address.netloc} ({address.key}) answers, Hadoop {version}")


def _nodemanagers(conf: HadoopConf) -> Diagnosis:
    address, _ = active_resourcemanager(conf, ANSWER_S)
    count = running_nodes(address, ANSWER_S)
    if not count:
        what = "none is running" if count == 0 else f"{address.netloc} does not report how many run"
        return Diagnosis("NodeManagers", "broken", what, f"see {address.url}/cluster/nodes")
    return Diagnosis("NodeManagers", "ok", f"{count} running")


def _dlobd_there(conf: HadoopConf) -> Diagnosis:
    if not nodes.have_dlobd(conf):
        return Diagnosis("dlobd there", "ok", "uploaded before the first run")
    nodes.check(HadoopWeb.connect(conf, user_name()))
    return Diagnosis("dlobd there", "ok", f"each node has {installation.this()}")


def _container_logs(conf: HadoopConf) -> Diagnosis:
    key = "yarn.log-aggregation-enable"
    if conf.get(key).lower() == "true":
        return Diagnosis("container logs", "ok", f"{key}=true: YARN keeps them in HDFS")
    what = f"{key} is not true: NodeManagers keep them only for a while"
    return Diagnosis(
        "container logs", "absent", what, "nothing for dlobd run; collect runs submitted by hand soon after they end"
    )


ANSWER_S = (3.0, 5.0)
"""Timeout to connect, and between two bytes: the user is waiting."""

THERE: tuple[tuple[str, Callable[[HadoopConf], Diagnosis]], ...] = (
    ("NameNode", _namenode),
    ("ResourceManager", _resourcemanager),
    ("NodeManagers", _nodemanagers),
    ("dlobd there", _dlobd_there),
    ("container logs", _container_logs),
)

EMBEDDED = ("Hadoop jars", "memory", "disk", "ports", "cluster")
"""Parts that a run on another cluster does not need."""

PARTS: tuple[tuple[str, Callable[[], Diagnosis]], ...] = (
    ("Python", _python),
    ("packages", _packages),
    ("kernel", _pidfd),
    ("clocks", _clocks),
    ("Java", _java),
    ("Hadoop jars", _jars),
    ("memory", _memory),
    ("disk", _disk),
    ("ports", _ports),
    ("data sets", _data),
    ("cluster", _cluster),
)
