"""The mini-cluster: rights, ports and limits of its containers, and the configuration of its daemons."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import node
import pytest
import yaml
from node import Node, configure

from dlobd import installation
from dlobd.hadoop.site_files import read_site
from dlobd.run.preflight.cluster import PYTHON, VERSION

TOP = Path(__file__).parents[2]
DOCKER = TOP / "docker"
COMPOSE = (DOCKER / "compose.yaml").read_text()

FILES = sorted(DOCKER.glob("*.yaml"))


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
    return found


def test_every_service_has_no_more_rights_than_it_needs(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {"check", "master", "worker", "edge"}
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) in ([], ["NET_ADMIN"]), name
        for volume in service.get("volumes", []):
            assert not volume.startswith(("/", ".", "~")), f"{name} mounts {volume} of the host"
    for path in FILES:
        for name, service in yaml.safe_load(path.read_text())["services"].items():
            rights = {"privileged", "network_mode", "pid", "ipc", "userns_mode", "security_opt", "user"} & set(service)
            assert rights == ({"network_mode"} if name == "check" else set()), (path.name, name)
    assert services["check"]["network_mode"] == "none"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_ports_are_published_on_this_machine_only(path: Path) -> None:
    """Hadoop has no authentication: without the address Docker would publish them to everyone."""
    for name, service in yaml.safe_load(path.read_text())["services"].items():
        for port in service.get("ports", []):
            assert isinstance(port, str), (name, port)
            assert port.startswith("127.0.0.1:"), (name, port)
            assert port.count(":") - port.count(":-") == 2, (name, port)


def test_no_two_daemons_share_a_port_and_published_ports_are_theirs(services: dict[str, dict[str, Any]]) -> None:
    inside = {name: [int(port.rpartition(":")[2]) for port in services[name]["ports"]] for name in ("master", "worker")}
    ports = node.PORTS
    assert inside["master"] == [ports["resourcemanager"]["web"], ports["namenode"]["http"], node.HISTORY_PORT]
    assert inside["worker"] == [ports["nodemanager"]["http"]]
    ports = [port for named in node.PORTS.values() for port in named.values()]
    assert len({*ports, node.HISTORY_PORT}) == len(ports) + 1


def test_devices_and_memory_limits_agree(services: dict[str, dict[str, Any]]) -> None:
    asked = services["check"]["environment"]
    for name in ("master", "worker", "edge"):
        assert services[name]["mem_limit"] == f"{asked[f'{name.upper()}_MEMORY_MB']}m", name
    assert services["worker"]["environment"]["WORKER_MEMORY_MB"] == asked["WORKER_MEMORY_MB"]
    assert services["worker"]["deploy"]["replicas"] == asked["WORKERS"]
    assert f"{node.RESERVED_MB} of them are for its daemons" in COMPOSE
    assert not [name for name, service in services.items() if "devices" in service]
    (added,) = yaml.safe_load((DOCKER / "compose.rdma.yaml").read_text())["services"].items()
    assert added == (
        "worker",
        {
            "devices": ["/dev/infiniband:/dev/infiniband"],
            "ulimits": {"memlock": {"soft": -1, "hard": -1}},
            "cap_add": ["IPC_LOCK"],
        },
    )


NETWORK = "dlobd-fabric"
MASTER, WORKER = f"master.{NETWORK}", f"dlobd-worker-1.{NETWORK}"
DAEMONS = {"master": ["namenode", "resourcemanager"], "worker": ["datanode-0", "nodemanager-0"], "edge": []}
RM = "yarn.resourcemanager."


def host(role: str, work_dir: Path) -> Node:
    names = {"master": MASTER, "worker": WORKER, "edge": f"dlobd-edge-run-1.{NETWORK}"}
    return Node(role, names[role], MASTER, work_dir, memory_mb=2048, vcores=3)


def written(role: str, work_dir: Path) -> Path:
    configure(host(role, work_dir))
    return work_dir / "conf"


@pytest.fixture(params=list(DAEMONS))
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_role_has_its_daemons(role: str, tmp_path: Path) -> None:
    assert [daemon.name for daemon in host(role, tmp_path).here] == DAEMONS[role]
    conf = written(role, tmp_path)
    assert {path.name for path in conf.iterdir()} == {*DAEMONS[role], "client", "spark"}


def test_everyone_finds_the_master_by_its_name_on_the_network(role: str, tmp_path: Path) -> None:
    conf = written(role, tmp_path)
    for place in ("client", *DAEMONS[role]):
        assert read_site(conf / place / "core-site.xml")["fs.defaultFS"] == f"hdfs://{MASTER}:8020", place
        hdfs = read_site(conf / place / "hdfs-site.xml")
        assert hdfs["dfs.namenode.rpc-address"] == f"{MASTER}:8020", place
        assert hdfs["dfs.namenode.http-address"] == f"{MASTER}:9870", place
    for place in ("client", *(name for name in DAEMONS[role] if name in ("resourcemanager", "nodemanager-0"))):
        yarn = read_site(conf / place / "yarn-site.xml")
        told = [key for key in yarn if re.match(rf"{RM}(.*address|hostname)$", key)]
        assert {key.removeprefix(RM): yarn[key] for key in told} == {
            "hostname": MASTER,
            "address": f"{MASTER}:8032",
            "scheduler.address": f"{MASTER}:8030",
            "resource-tracker.address": f"{MASTER}:8031",
            "admin.address": f"{MASTER}:8033",
            "webapp.address": f"{MASTER}:8088",
        }, place


def test_the_masters_daemons_listen_on_all_interfaces(tmp_path: Path) -> None:
    """Their own name would bind them to one network, and the published ports would lead nowhere."""
    conf = written("master", tmp_path)
    namenode = read_site(conf / "namenode" / "hdfs-site.xml")
    assert namenode["dfs.namenode.rpc-bind-host"] == namenode["dfs.namenode.http-bind-host"] == "0.0.0.0"
    manager = read_site(conf / "resourcemanager" / "yarn-site.xml")
    assert manager["yarn.resourcemanager.bind-host"] == "0.0.0.0"


def test_a_workers_daemons_have_its_name_and_listen_on_all_interfaces(tmp_path: Path) -> None:
    conf = written("worker", tmp_path)
    datanode = read_site(conf / "datanode-0" / "hdfs-site.xml")
    assert {key: value for key, value in datanode.items() if key.startswith("dfs.datanode.")} == {
        "dfs.datanode.data.dir": f"{tmp_path.as_uri()}/datanode-0",
        "dfs.datanode.hostname": WORKER,
        "dfs.datanode.address": "0.0.0.0:9866",
        "dfs.datanode.http.address": "0.0.0.0:9864",
        "dfs.datanode.ipc.address": "0.0.0.0:9867",
        "dfs.datanode.http.internal-proxy.port": "9865",
        "dfs.datanode.use.datanode.hostname": "true",
    }
    manager = read_site(conf / "nodemanager-0" / "yarn-site.xml")
    manager = {key.removeprefix("yarn.nodemanager."): value for key, value in manager.items()}
    assert (manager["hostname"], manager["bind-host"]) == (WORKER, "0.0.0.0")
    assert {key: manager[key] for key in ("address", "localizer.address", "webapp.address")} == {
        "address": f"{WORKER}:8041",
        "localizer.address": f"{WORKER}:8040",
        "webapp.address": f"{WORKER}:8042",
    }
    assert (manager["resource.memory-mb"], manager["resource.cpu-vcores"]) == ("2048", "3")


def test_no_address_is_of_the_loopback_interface(role: str, tmp_path: Path) -> None:
    for site in written(role, tmp_path).glob("*/*.xml"):
        for key, value in read_site(site).items():
            assert "127.0.0.1" not in value, (site, key)
            assert "localhost" not in value, (site, key)


def test_site_files_of_yarn_name_the_dlobd_of_the_nodes(role: str, tmp_path: Path) -> None:
    this = installation.this()
    said = {VERSION: this.version, PYTHON: this.python}
    conf = written(role, tmp_path)
    for site in conf.glob("*/*.xml"):
        found = {key: value for key, value in read_site(site).items() if "dlobd" in key}
        assert found == (said if site.name == "yarn-site.xml" else {}), site
    assert Path(this.python).samefile(sys.executable)
