"""Writes the configuration of daemons and clients from the templates in `yarn/base`.

A template has `key=value` lines with comments and $placeholders; log4j2 files are copied unchanged. Each daemon has its
own configuration directory. The clients' directory contains only the three site files, as Spark ships all.
"""

import ipaddress
import os
import pwd
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from dlobd.errors import SetupError, UsageError
from dlobd.hadoop import spark_logging
from dlobd.hadoop.embedded.ports import port_base
from dlobd.installation import Installed
from dlobd.paths import cache_dir, plain, resolved_plain, shipped

LOOPBACK = "127.0.0.1"

DAEMON_PORTS = {
    "namenode": ("rpc", "http"),
    "datanode": ("data", "http", "ipc", "proxy"),
    "resourcemanager": ("client", "scheduler", "tracker", "admin", "web"),
    "nodemanager": ("rpc", "localizer", "http"),
}
"""Ports of each kind of daemon, in numerical order."""

MAX_WORK_DIR = 70
"""Longest path of a work directory in bytes; longer paths are used through a link. Python's multiprocessing creates
sockets below <work dir>/tmp, and the path of a socket has at most 107 bytes."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of the embedded cluster. Hosts are loopback addresses, such as 127.0.0.2."""

    work_dir: Path  # directory of all files, including HDFS's content
    datanode_hosts: tuple[str, ...] = (LOOPBACK, LOOPBACK)
    nodemanager_hosts: tuple[str, ...] = (LOOPBACK, LOOPBACK)
    nodemanager_memory_mb: int = 6144
    nodemanager_vcores: int = 32  # more than this machine has, because nothing limits a container to its vcores
    daemon_heap_mb: int = 256
    log_aggregation: bool = False  # in HDFS, as most real clusters do; `dlobd run` needs only local logs
    resource_types: tuple[str, ...] = ()  # to be defined in YARN, such as yarn.io/gpu; no node has such resources
    installed: Installed | None = None  # what nodes report; None on a single machine, where clients do not check it
    own: Mapping[str, str] = field(default_factory=dict)  # Hadoop settings of the user, which override the templates
    port_base: int | None = None


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    """A planned daemon."""

    name: str  # its kind, with an index if there are several: datanode-0
    kind: str
    host: str  # its address for other daemons and clients, or a name that all of them can resolve
    ports: Mapping[str, int]
    bind: str = ""  # its listening address; empty: `host`


def default_settings(hosts: str | None = None, own: Sequence[str] = ()) -> ClusterSettings:
    """Return the settings of the cluster in the cache directory, with DLOBD_PORT_BASE and DLOBD_HOSTS.

    `hosts`, loopback addresses separated by commas, each with a DataNode and a NodeManager, overrides DLOBD_HOSTS;
    `own` has Hadoop settings of the form KEY=VALUE. Raises SetupError if DLOBD_PORT_BASE is not a number, UsageError if
    a host is not a loopback address, or a setting is refused.
    """
    parsed = parse_user_settings(own, _filled_in()) if own else {}
    settings = ClusterSettings(cache_dir() / "cluster", own=parsed, port_base=port_base())
    chosen, origin = (hosts, "--hosts") if hosts is not None else (os.environ.get("DLOBD_HOSTS", ""), "DLOBD_HOSTS")
    if not chosen.strip():
        return settings
    checked = tuple(_loopback(word.strip(), origin) for word in chosen.split(","))
    return replace(settings, datanode_hosts=checked, nodemanager_hosts=checked)


def _loopback(host: str, origin: str) -> str:
    try:
        if ipaddress.IPv4Address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise UsageError(
        f"{origin}: {host!r} is not a loopback address; the embedded cluster has no authentication.",
        "use loopback addresses, for example 127.0.0.2,127.0.0.3",
    )


SITES = {
    "dfs.": "hdfs-site",
    "yarn.scheduler.capacity.": "capacity-scheduler",
    "yarn.": "yarn-site",
    "hadoop.": "core-site",
    "fs.": "core-site",
    "io.": "core-site",
    "ipc.": "core-site",
}
"""Mapping of a key's prefix to the file from which Hadoop reads it. Longer prefixes come first."""


def parse_user_settings(words: Iterable[str], reserved: Collection[str]) -> dict[str, str]:
    """Parse settings of the form KEY=VALUE. Users cannot set `reserved` keys, which the cluster sets itself.

    Raises UsageError if a word has another form, or its key is reserved or is not a key of Hadoop.
    """
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key:
            raise UsageError(f"--conf {word} is not KEY=VALUE.", "for example --conf dfs.replication=2")
        if _site(key) is None:
            *most, last = dict.fromkeys(prefix.split(".")[0] + "." for prefix in SITES)
            expected = f"use a key that begins with {', '.join(most)} or {last}"
            raise UsageError(f"--conf {key} is not a setting of HDFS, YARN or Hadoop.", expected)
        if key in reserved:
            raise UsageError(f"--conf {key}: the embedded cluster sets this key itself.", "leave it out")
        settings[key] = value
    return settings


def _site(key: str) -> str | None:
    return next((site for prefix, site in SITES.items() if key.startswith(prefix)), None)


def user_name() -> str:
    """Return the user name that Hadoop's simple authentication gets from the operating system."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise SetupError(
            f"The user ID {os.getuid()} has no user name on this machine, and Hadoop needs a user name.",
            "run as a user of /etc/passwd.",
        ) from None


def work_dir_name(work_dir: Path) -> Path:
    """Return an absolute path of the work directory that is valid in Hadoop's configuration and for Unix sockets.
    Raises SetupError if there is no such path."""
    # a link does not help: Hadoop resolves it, and puts the path between single quotes for `df`
    if "'" in os.path.realpath(work_dir.expanduser()):
        raise SetupError(
            f"The path of the cluster directory {work_dir} contains a single quote, which Hadoop cannot handle.",
            "set DLOBD_CACHE to a directory without a quote",
        )
    return plain(Path(os.path.abspath(work_dir.expanduser())), MAX_WORK_DIR)


def plan_hosts(settings: ClusterSettings) -> list[tuple[str, str, str]]:
    """Return name, kind and host of every daemon in start order."""
    return [
        ("namenode", "namenode", LOOPBACK),
        *((f"datanode-{i}", "datanode", host) for i, host in enumerate(settings.datanode_hosts)),
        ("resourcemanager", "resourcemanager", LOOPBACK),
        *((f"nodemanager-{i}", "nodemanager", host) for i, host in enumerate(settings.nodemanager_hosts)),
    ]


def port_hosts(settings: ClusterSettings) -> list[str]:
    """Return the host of each port, in the order of `plan`."""
    return [host for _, kind, host in plan_hosts(settings) for _ in DAEMON_PORTS[kind]]


def plan(settings: ClusterSettings, ports: Sequence[int]) -> list[DaemonPlan]:
    """Assign the ports, one for each of `port_hosts`, to the daemons."""
    left = iter(ports)
    return [
        DaemonPlan(name, kind, host, {port: next(left) for port in DAEMON_PORTS[kind]})
        for name, kind, host in plan_hosts(settings)
    ]


def write_configuration(
    settings: ClusterSettings, daemons: Sequence[DaemonPlan], here: Collection[DaemonPlan] | None = None
) -> None:
    """Replace `<work dir>/conf/<daemon>`, for all `daemons` of the cluster or those `here` on this host, `conf/client`
    and `conf/spark`. Raises SetupError if a template is missing or broken."""
    conf = settings.work_dir / "conf"
    shutil.rmtree(conf, ignore_errors=True)
    values = _common_values(settings, daemons)
    installed = ["installed"] if settings.installed else []
    for daemon in daemons if here is None else here:
        ports = {name: str(port) for name, port in daemon.ports.items()}
        own = {**values, **ports, "name": daemon.name, "host": daemon.host, "bind": daemon.bind or daemon.host}
        directory = conf / daemon.name
        hdfs = daemon.kind in ("namenode", "datanode")
        _write_site(directory / "core-site.xml", ["core-site"], own, settings.own)
        _write_site(directory / "hdfs-site.xml", ["hdfs-site", *([daemon.kind] if hdfs else [])], own, settings.own)
        if not hdfs:
            _write_site(directory / "yarn-site.xml", ["yarn-site", daemon.kind, *installed], own, settings.own)
        if daemon.kind == "resourcemanager":
            _write_site(directory / "capacity-scheduler.xml", ["capacity-scheduler"], own, settings.own)
        shutil.copyfile(_template("log4j2-daemons"), directory / "log4j2.properties")
    for site, templates in (
        ("core-site", ["core-site", "client"]),
        ("hdfs-site", ["hdfs-site"]),
        ("yarn-site", ["yarn-site", *installed]),
    ):
        _write_site(conf / "client" / f"{site}.xml", templates, values, settings.own)
    spark_logging.write(spark_conf_dir(settings.work_dir))


def spark_conf_dir(work_dir: Path) -> Path:
    """Return SPARK_CONF_DIR of spark-submit."""
    return resolved_plain(work_dir / "conf" / "spark")


def parse_template(text: str, values: Mapping[str, str], origin: str) -> dict[str, str]:
    """Return the properties of a template with placeholders filled in. Raises SetupError for a bad line."""
    properties: dict[str, str] = {}
    for number, key, equals, value in _lines(text):
        try:
            if not equals:
                raise ValueError("no '='")
            properties[key] = Template(value).substitute(values)
        except (KeyError, ValueError) as error:
            raise SetupError(f"{origin}, line {number}, is not key=value with known $names: {error}.") from error
    return properties


def _lines(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield number, key, equals sign and value of each line except comments. A missing equals sign is empty."""
    for number, line in enumerate(text.splitlines(), 1):
        if (line := line.strip()) and not line.startswith("#"):
            key, equals, value = line.partition("=")
            yield number, key.strip(), equals, value.strip()


def _common_values(settings: ClusterSettings, daemons: Sequence[DaemonPlan]) -> dict[str, str]:
    by_name = {daemon.name: daemon for daemon in daemons}
    namenode, manager = by_name["namenode"], by_name["resourcemanager"]
    installed = settings.installed
    return {
        "work_dir": str(settings.work_dir),
        "work_uri": settings.work_dir.as_uri(),
        "user": user_name(),
        "namenode_host": namenode.host,
        "namenode_rpc": str(namenode.ports["rpc"]),
        "namenode_http": str(namenode.ports["http"]),
        "rm_host": manager.host,
        **{f"rm_{port}": str(number) for port, number in manager.ports.items()},
        "nodemanager_memory_mb": str(settings.nodemanager_memory_mb),
        "nodemanager_vcores": str(settings.nodemanager_vcores),
        "log_aggregation": str(settings.log_aggregation).lower(),
        "resource_types": ",".join(settings.resource_types),
        **({"installed_version": installed.version, "installed_python": installed.python} if installed else {}),
    }


def _template(name: str) -> Path:
    return shipped("yarn") / "base" / f"{name}.properties"


def _filled_in() -> set[str]:
    """Return the template keys whose value is an address, a port or a directory of this cluster."""
    templates = _template("core-site").parent.glob("*.properties")
    return {key for path in templates for _, key, _, value in _lines(path.read_text()) if "$" in value}


def _write_site(path: Path, templates: Sequence[str], values: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    root = ElementTree.Element("configuration")
    properties: dict[str, str] = {}
    for name in templates:
        source = _template(name)
        properties |= parse_template(source.read_text(), values, str(source))
    properties |= {key: value for key, value in chosen.items() if _site(key) == path.stem}
    for key, value in properties.items():
        element = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(element, "name").text = key
        ElementTree.SubElement(element, "value").text = value
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
