"""By which network Spark and HDFS went, from a bundle's evidence: names of hosts, and the client's own interfaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import files
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.files import load
from dlobd.measures.transport import SPARK, planes, spark_addresses
from dlobd.record.run import Plane
from tests.counter_trees import Host

DRIVER, EXECUTOR = "10.77.2.9", "dlobd-worker-1.dlobd-fabric"
"""In client mode Spark knows the driver by the address that dlobd gave it, executors by YARN's names of their hosts."""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    events = [
        {
            "Event": "SparkListenerBlockManagerAdded",
            "Block Manager ID": {"Executor ID": who, "Host": host, "Port": 7079},
        }
        for who, host in (("driver", DRIVER), ("1", EXECUTOR), ("2", "dlobd-worker-2.dlobd-fabric"))
    ]
    put(tmp_path, files.EVENT_LOG, "".join(json.dumps(event) + "\n" for event in events))
    return tmp_path


def put(bundle: Path, name: str, content: Any) -> None:
    path = bundle / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def client(tree: Path) -> dict[str, Any]:
    host = Host(tree, "edge")
    host.interface("eth0", "10.77.1.9")
    host.interface("eth1", DRIVER)
    return host.read().to_json()


def spark(bundle: Path, asked: str = "tcp@10.77.2.0/24") -> Plane:
    experiment = load("softmax-mnist-quick", (f"channel={asked}", "exchange=ring", "planes=all"))
    found = planes(experiment, Evidence(bundle))
    assert found is not None
    (plane,) = (plane for plane in found if plane.plane == SPARK)
    return plane


def test_names_of_hosts_are_addresses_where_they_are_known(bundle: Path) -> None:
    assert spark_addresses(Evidence(bundle)) == (DRIVER, EXECUTOR, "dlobd-worker-2.dlobd-fabric")
    put(bundle, files.HOSTS, {EXECUTOR: "10.77.2.3", "dlobd-worker-9.dlobd-fabric": "10.77.2.11"})
    assert spark_addresses(Evidence(bundle)) == ("10.77.2.3", DRIVER, "dlobd-worker-2.dlobd-fabric")


def test_one_host_is_told_once(bundle: Path) -> None:
    """In cluster mode the driver is on the host of an executor: known by its address, the other by its name."""
    put(bundle, files.HOSTS, {EXECUTOR: DRIVER, "dlobd-worker-2.dlobd-fabric": "10.77.2.4"})
    assert spark_addresses(Evidence(bundle)) == ("10.77.2.4", DRIVER)


def test_the_clients_interfaces_make_the_drivers_address_known(bundle: Path, tmp_path: Path) -> None:
    put(bundle, files.HOSTS, {EXECUTOR: DRIVER, "dlobd-worker-2.dlobd-fabric": DRIVER})
    plane = spark(bundle)
    assert (plane.kind, plane.interface, plane.agrees) == ("unknown", "", None)
    put(bundle, files.CLIENT_INTERFACES, client(tmp_path / "tree"))
    plane = spark(bundle)
    assert (plane.kind, plane.interface, plane.agrees) == ("tcp", "eth1", True), plane.evidence
    assert f"{DRIVER} is an address of eth1" in plane.evidence
    assert spark(bundle, "tcp@10.77.1.0/24").agrees is False


@pytest.mark.parametrize("cut", ['{"host": "edge", "interf', "{}", "[]", "null", '{"sockets": null, "host": "edge"}'])
def test_interfaces_that_were_not_written_whole_are_not_known(bundle: Path, cut: str) -> None:
    put(bundle, files.HOSTS, {EXECUTOR: DRIVER, "dlobd-worker-2.dlobd-fabric": DRIVER})
    put(bundle, files.CLIENT_INTERFACES, cut)
    assert spark(bundle).kind == "unknown"
