"""Checks of this machine for `dlobd doctor`, and the sockets on which a run listens.

For an external cluster only the parts that its runs need are checked, and `cluster` adds checks of the cluster. Without
RDMA a run uses Ethernet, so diagnoses of `channels` are optional unless a channel is required.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path

from dlobd.axes import DATASETS
from dlobd.errors import ClusterError, SetupError
from dlobd.experiment import user_config
from dlobd.experiment.files import load
from dlobd.hadoop.embedded import configuration, startup
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.hadoop.embedded.jars import JARS
from dlobd.hadoop.embedded.java import find_java
from dlobd.hadoop.embedded.ports import choose_ports, port_base
from dlobd.hadoop.site_files import HadoopConf
from dlobd.job.datasets.base import dataset_of
from dlobd.memory import available_memory_bytes
from dlobd.paths import cache_dir, cluster_dir, config_file, make_writable, sha256_of
from dlobd.run.preflight import Absent, Diagnosis, channels, cluster, diagnose
from dlobd.run.preflight.capacity import demand_mb
from dlobd.tracing import clock
from dlobd.user_file import MemberRef


def examine(conf_dir: Path | None = None, require: Sequence[str] = (), allow_soft: bool = False) -> list[Diagnosis]:
    """Return the diagnoses of all parts, in the order in which a run needs them.

    `conf_dir` is the HADOOP_CONF_DIR of the run's external cluster; the check ends within a minute even if none of its
    daemons answers. `require` has the channels that must exist, as TRANSPORT[@DEVICE]; for `allow_soft` see `required`.

    Raises UsageError if `conf_dir` cannot be read or used, or `require` names no channel.
    """
    specs = [channels.channel(text) for text in require]
    conf = None if conf_dir is None else HadoopConf.read(conf_dir)
    if conf is not None:
        conf.check_supported()
    here = [diagnose(part, check) for part, check in PARTS if conf is None or part not in EMBEDDED]
    network = channels.examine()
    here += [*network, *(channels.required(spec, network, allow_soft) for spec in specs)]
    if conf is None:
        return here
    return here + [diagnose(part, partial(check, conf), remote=True) for part, check in cluster.PARTS]


def exit_code(diagnoses: Sequence[Diagnosis]) -> int:
    """Return the exit code that a run would have: 3 for a broken part of this machine, 4 for one of the cluster."""
    broken = [one for one in diagnoses if one.verdict == "broken" and not one.optional]
    if not broken:
        return 0
    return ClusterError.exit_code if all(one.remote for one in broken) else SetupError.exit_code


def _configuration() -> str:
    keys = [name for name, value in asdict(user_config.read()).items() if value]
    if not config_file().exists():
        raise Absent(f"there is no file {config_file()}", "no action needed: options have their own defaults")
    return f"{config_file()}: {', '.join(keys)}"


def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise SetupError(f"{version}; 3.11, 3.12 or 3.13 is required", "install dlobd with one of these versions")
    return f"{version}, {sys.executable}"


def _packages() -> str:
    missing, versions = [], []
    for name in ("pyspark", "tensorflow", "tensorflowonspark"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise SetupError(f"missing packages: {', '.join(missing)}", "reinstall dlobd with pip")
    return ", ".join(versions)


def _java() -> str:
    java = find_java()
    return f"{java.version} ({java.origin}), {java.home}"


def _jars() -> str:
    given = os.environ.get("DLOBD_JARS")  # a directory that dlobd never changes
    directory = Path(given).expanduser() if given else cache_dir() / "jars"
    missing = [jar for jar in JARS if not (directory / jar.file_name).is_file()]
    if missing:
        what = f"{len(missing)} of {len(JARS)} jars are missing from {directory}"
        if given:
            raise SetupError(what, "put them there, or unset DLOBD_JARS")
        size_mb = sum(jar.size_bytes for jar in missing) / 1e6
        raise Absent(f"{what} ({size_mb:.0f} MB)", "no action needed: the first run downloads them")
    wrong = [jar.file_name for jar in JARS if sha256_of(directory / jar.file_name) != jar.sha256]
    if wrong:
        again = "dlobd clean --yes; the next run downloads them again"
        remedy = "replace them, or unset DLOBD_JARS" if given else again
        raise SetupError(f"wrong sha256 for {', '.join(wrong)} in {directory}", remedy)
    return f"{len(JARS)} jars with correct sha256 in {directory}"


def _memory() -> str:
    settings = default_settings()
    startup.check_memory(settings)
    needed_mb = sum(demand_mb(load("softmax-mnist")).values())
    available_mb = available_memory_bytes() >> 20
    if needed_mb > available_mb:
        raise SetupError(
            f"{available_mb} MB available; the main job needs {needed_mb} MB",
            "free memory, or run softmax-mnist with --set workers=1",
        )
    return f"{available_mb} MB available; the main job needs {needed_mb} MB besides the daemons"


def _disk() -> str:
    make_writable(cache_dir())
    startup.check_disk(cache_dir())
    return f"{shutil.disk_usage(cache_dir()).free >> 20} MB free in {cache_dir()}"


def _ports() -> str:
    hosts = configuration.port_hosts(default_settings())
    base = port_base()
    if _running() and base is not None:
        return f"{len(hosts)} ports from {base} are in use by the running cluster"
    first = choose_ports(hosts, base)[0]
    return f"{len(hosts)} consecutive free ports, for example from {first}"


def _data() -> str:
    size = 0
    main = load("softmax-mnist")
    for row in DATASETS:
        if row.reason() is None and not row.package:
            dataset = dataset_of(replace(main, dataset=MemberRef(row.name)))
            next(dataset.chunks("test", range(1), 1))
            size += sum(path.stat().st_size for path in dataset.files())
    return f"{size / 1e6:.1f} MB, checksums correct"


def _running() -> EmbeddedCluster | None:
    try:
        return EmbeddedCluster.attach(cluster_dir(), hold=False)
    except ClusterError:
        return None


def _cluster() -> str:
    embedded = _running()
    if embedded is None:
        raise Absent(
            "no cluster is running",
            "no action needed: a run starts its own cluster. To keep a cluster running: dlobd cluster up",
        )
    status = embedded.status()
    dead = [daemon.name for daemon in status.daemons if not daemon.ready]
    if dead or status.safe_mode:
        why = f"{', '.join(dead)} not ready" if dead else "the NameNode is in safe mode"
        raise SetupError(why, "dlobd cluster down, then up")
    return f"running for {status.up_s:.0f} s, {status.applications} applications"


def _clocks() -> str:
    resolution_ns = round(time.get_clock_info("monotonic").resolution * 1e9)
    anchor = clock.anchor()
    what = f"monotonic clock resolution {resolution_ns} ns; wall clock paired with it within {anchor.error_ns} ns"
    if "unknown" in anchor.domain:
        raise SetupError(f"{what}; boot ID or time namespace cannot be read", "mount /proc")
    return what


def _pidfd() -> str:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise SetupError(f"this kernel has no pidfd_open ({error}).", "use Linux 5.3 or newer") from error
    return f"{os.uname().release}, pidfd"


EMBEDDED = ("Hadoop jars", "memory", "disk", "ports", "cluster")
"""Parts that a run on an external cluster does not need."""

PARTS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("configuration", _configuration),
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


@dataclass(frozen=True, slots=True)
class Listener:
    """Socket that a run opens: its program, its address and its protection."""

    program: str
    address: str
    protected: str


_LISTENERS = """
HDFS's and YARN's daemons | 127.0.0.1 | nothing (Hadoop's simple authentication)
Spark's driver and executors | 127.0.0.1 | nothing, unless spark.authenticate is set
TensorFlowOnSpark's reservation server, which unpickles its input | 127.0.0.1; tfos-stock: 0.0.0.0 | nothing
TensorFlowOnSpark's queue manager | a Unix socket; for ps and evaluator: 0.0.0.0 | its own key
TensorFlow's gRPC server in each rank, with TensorFlow's own exchanges | 0.0.0.0, fixed by TensorFlow | nothing
dlobd in the driver: clock; with barrier also the ranks' log lines | 127.0.0.1 | the run's secret
dlobd in the driver, with exchanges of dlobd's own: key-value store; with mpi also PMI | 127.0.0.1 | the run's secret
a rank's channel, with dlobd's own exchanges: sockets and grpc | CHANNEL | HMAC with the run's secret
a rank's channel, with dlobd's own exchanges: ucx and mpi | CHANNEL | nothing
""".replace("CHANNEL", "the channel's address; without a device: 127.0.0.1")
LISTENERS = tuple(Listener(*map(str.strip, line.split("|"))) for line in _LISTENERS.strip().splitlines())


def listeners(conf_dir: Path | None = None) -> tuple[Listener, ...]:
    """Return the sockets that a run opens on this machine, and on nodes of the cluster of `conf_dir`."""
    if conf_dir is None:
        return LISTENERS
    node = "each host's address in the cluster"
    # the first row is for the embedded daemons, which an external cluster does not use
    return tuple(replace(row, address=row.address.replace("127.0.0.1", node)) for row in LISTENERS[1:])
