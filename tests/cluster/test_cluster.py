from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import hdfs
import psutil
import pytest
import requests

from dlobd.errors import Busy
from dlobd.hadoop import web
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.embedded.processes import daemons_of
from tests.faults import start_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

NAMES = {"namenode", "datanode-0", "datanode-1", "resourcemanager", "nodemanager-0", "nodemanager-1"}


def mentions(work_dir: Path) -> list[str]:
    """The command lines of all processes that name `work_dir`: daemons, containers, watchdog."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text().replace("\0", " ")
        except OSError:
            continue
        if str(work_dir) in command:
            found.append(command)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    embedded = EmbeddedCluster(ClusterSettings(tmp_path_factory.mktemp("c")))
    said: list[str] = []
    embedded.start(said.append)
    assert any("cluster ready" in line for line in said)
    yield embedded
    embedded.stop()
    assert mentions(embedded.work_dir) == []
    assert not (embedded.work_dir / "state.json").exists()


def test_every_daemon_runs_and_answers(cluster: EmbeddedCluster) -> None:
    status = cluster.status()
    assert status.state == "running"
    assert {daemon.name for daemon in status.daemons} == NAMES
    assert all(daemon.ready and daemon.rss_bytes > 50 << 20 for daemon in status.daemons)
    assert not status.safe_mode
    assert set(cluster.memory()) == NAMES
    nodes = web.nodes(cluster.endpoints.rm_url)
    assert [node["state"] for node in nodes] == ["RUNNING", "RUNNING"]
    for url in cluster.endpoints.web.values():
        assert requests.get(url, timeout=20).status_code == 200


def test_daemons_start_from_the_archive_of_their_classes(cluster: EmbeddedCluster) -> None:
    processes = daemons_of(cluster.work_dir)
    assert len(processes) == len(NAMES)
    assert all("/daemons.jsa" in Path(f"/proc/{process.pid}/maps").read_text() for process in processes)
    assert [path.read_text() for path in cluster.work_dir.glob("log/*/*.out")] == [""] * len(NAMES)


def test_webhdfs_round_trip_leaves_records_on_the_monotonic_clock(cluster: EmbeddedCluster) -> None:
    """Bytes written through WebHDFS come back equal; NameNode and DataNodes recorded it within the test's own time."""
    data = os.urandom(3_000_000)
    client = hdfs.InsecureClient(cluster.endpoints.webhdfs_url, user=cluster.user)
    before = time.monotonic_ns()
    client.write("/round/trip", data)
    with client.read("/round/trip") as reader:
        assert reader.read() == data
    after = time.monotonic_ns()
    logs = cluster.log_files()
    audit = [line for line in logs["namenode-audit"].read_text().splitlines() if "src=/round/trip" in line]
    assert {"cmd=create", "cmd=open"} <= {word for line in audit for word in line.split()}
    for line in audit:
        assert before <= int(line.split()[0]) <= after
    traces = "".join(path.read_text() for name, path in logs.items() if name.endswith("clienttrace") and path.exists())
    assert "op: HDFS_WRITE" in traces
    assert "op: HDFS_READ" in traces, "reads are logged at debug only"


def test_all_sockets_are_on_loopback(cluster: EmbeddedCluster) -> None:
    listening = [
        connection.laddr.ip
        for process in daemons_of(cluster.work_dir)
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 21
    assert all(address.removeprefix("::ffff:").startswith("127.") for address in listening), set(listening)


def test_a_second_command_finds_it_busy(cluster: EmbeddedCluster) -> None:
    """While this process holds the cluster, starting and attaching are refused, naming it; looking is allowed."""
    with pytest.raises(Busy, match=str(os.getpid())):
        EmbeddedCluster(cluster.settings).start(lambda line: None)
    with pytest.raises(Busy, match=str(os.getpid())):
        EmbeddedCluster.attach(cluster.work_dir)
    assert EmbeddedCluster.attach(cluster.work_dir, hold=False).endpoints == cluster.endpoints


def test_a_daemon_that_died_is_started_again(cluster: EmbeddedCluster) -> None:
    """It is known to be dead, comes back with its ports, and every handle on the cluster sees the new process."""
    other = EmbeddedCluster.attach(cluster.work_dir, hold=False)
    before = {daemon.name: daemon.pid for daemon in other.status().daemons}
    pid = before["resourcemanager"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while [daemon["name"] for daemon in other.daemons_now() if not daemon["alive"]] != ["resourcemanager"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    start_again(cluster, "resourcemanager")
    after = {daemon.name: daemon for daemon in other.status().daemons}
    assert after["resourcemanager"].ready
    assert {name for name in NAMES if after[name].pid != before[name]} == {"resourcemanager"}
    assert set(other.memory()) == NAMES
