"""The files of the mini-cluster: what they let through, what they let out, and that their figures agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import node
import pytest
import yaml

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


def test_published_ports_are_those_on_which_the_daemons_listen(services: dict[str, dict[str, Any]]) -> None:
    inside = {name: [int(port.rpartition(":")[2]) for port in services[name]["ports"]] for name in ("master", "worker")}
    ports = node.PORTS
    assert inside["master"] == [ports["resourcemanager"]["web"], ports["namenode"]["http"], node.HISTORY_PORT]
    assert inside["worker"] == [ports["nodemanager"]["http"]]


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
