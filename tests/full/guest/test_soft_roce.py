"""dlobd on a kernel that has RDMA devices: Soft-RoCE in the guest, whose driver and /sys are the real ones."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PORTS = ["rxe0:1", "rxe1:1"]


def test_both_devices_are_active(report: dict[str, Any]) -> None:
    """By the `rdma` of iproute2, and any memory may be locked."""
    links = [(one["ifname"], one["port"], one["state"], one["netdev"]) for one in report["links"]]
    assert links == [("rxe0", 1, "ACTIVE", "v0"), ("rxe1", 1, "ACTIVE", "v1")]
    assert report["locked_memory"]


@pytest.mark.parametrize(("name", "interface", "gid"), [("rxe0", "v0", "0a09:0001"), ("rxe1", "v1", "0a09:0101")])
def test_a_soft_device_is_read_from_sys(report: dict[str, Any], name: str, interface: str, gid: str) -> None:
    """As software on its interface, with the states and the RoCE v2 address that the kernel gave it."""
    device = report["devices"][name]
    assert (device["soft"], device["parent"]) == (True, interface)
    (port,) = device["ports"]
    assert (port["state"], port["phys_state"], port["link_layer"]) == ("ACTIVE", "LinkUp", "Ethernet")
    gids = {one["gid"]: (one["kind"], one["interface"]) for one in port["gids"]}
    assert gids[f"0000:0000:0000:0000:0000:ffff:{gid}"] == ("RoCE v2", interface)


@pytest.mark.parametrize(("transfer", "used"), [("one device", PORTS[:1]), ("two devices", PORTS)])
def test_a_reliable_connection_moves_the_counters_of_its_devices(
    report: dict[str, Any], transfer: str, used: list[str]
) -> None:
    packets = report[transfer]["packets"]
    assert [name for name, (sent, received) in packets.items() if sent and received] == used
    assert [name for name, counts in packets.items() if counts == [0, 0]] == [one for one in PORTS if one not in used]
    plane = report[transfer]["plane"]
    assert (plane["kind"], plane["device"], plane["soft"]) == ("verbs", ", ".join(used), True)
    assert plane["agrees"], plane["evidence"]


def test_tcp_between_the_devices_addresses_is_not_taken_for_rdma(report: dict[str, Any]) -> None:
    assert set(map(tuple, report["tcp"]["packets"].values())) == {(0, 0)}
    plane = report["tcp"]["plane"]
    assert (plane["kind"], plane["agrees"]) == ("tcp", False)


def test_bytes_that_nothing_counted_are_not_taken_for_rdma(report: dict[str, Any]) -> None:
    assert set(map(tuple, report["idle"]["packets"].values())) == {(0, 0)}
    plane = report["idle"]["plane"]
    assert (plane["kind"], plane["agrees"]) == ("unknown", False)


def test_doctor_refuses_soft_roce_where_rdma_is_required(report: dict[str, Any]) -> None:
    """Its exit code is 3 for that reason alone, which names Soft-RoCE and the way to allow it."""
    doctor = report["doctor"]
    assert (doctor["code"], doctor["stderr"]) == (3, "")
    findings = doctor["findings"]
    required = findings["required rdma"]
    assert required["verdict"] == "broken"
    assert "rxe0 (Soft-RoCE on v0), rxe1 (Soft-RoCE on v1)" in required["what"]
    assert "--allow-soft" in required["remedy"]
    assert [part for part, one in findings.items() if one["verdict"] == "broken"] == ["required rdma"]
    assert findings["RDMA hardware"]["verdict"] == "absent"
    for part in ("RDMA devices", "RDMA access", *(f"RDMA port {name}" for name in PORTS)):
        assert findings[part]["verdict"] == "ok", findings[part]
    # its rate file says 10 Gb/sec, which no software device has
    assert not any("Gb/sec" in one["what"] for one in findings.values())


def test_our_binding_goes_over_verbs(report: dict[str, Any]) -> None:
    """Messages of all sizes, in parts, put and get over rc; UCX says so, and the device's counters do.

    UCX connects rc over datagrams of the same device, and may keep that lane.
    """
    found = report["ucx"]
    assert set(found["lanes"]) - {"ud_verbs/rxe0:1"} == {"rc_verbs/rxe0:1"}, found["lanes"]
    plane = found["plane"]
    assert (plane["kind"], plane["device"], plane["soft"], plane["agrees"]) == ("verbs", "rxe0:1", True, True), plane


def test_three_ranks_all_reduce_over_verbs(report: dict[str, Any]) -> None:
    rdma, tcp = report["ring"]["rdma@rxe0:1"], report["ring"]["tcp"]
    assert len(set(rdma["means"] + tcp["means"])) == 1
    assert rdma["means"][0]
    assert len(rdma["means"]) == 3
    plane = rdma["plane"]
    assert (plane["kind"], plane["soft"], plane["agrees"]) == ("verbs", True, True), plane
    assert (tcp["plane"]["kind"], tcp["plane"]["agrees"]) == ("tcp", True), tcp["plane"]


def test_micro_benchmarks_go_over_verbs(report: dict[str, Any]) -> None:
    found = report["micro"]
    assert found["code"] == 0, found["stderr"]
    launches = found["results"]["launches"]
    assert [launch["failed"] for launch in launches] == [""] * len(launches)
    measured = {point["point"]["benchmark"] for launch in launches for point in launch["points"]}
    assert measured == {"latency", "bandwidth", "bidirectional", "rate", "put", "get", "ps", "exchange"}
    assert {launch["route"]["library"] for launch in launches} == {"ucx"}
    planes = [launch["transport"] for launch in launches if launch["transport"]]
    assert {(plane["kind"], plane["soft"], plane["agrees"]) for plane in planes} == {("verbs", True, True)}


def test_retransmissions_on_a_lossy_link_are_reported(report: dict[str, Any]) -> None:
    """3 % of the packets of loopback are lost; the content of all messages is right."""
    found = report["micro with loss"]
    assert found["code"] == 0, found["stderr"]
    (launch,) = found["results"]["launches"]
    assert launch["retransmitted_bytes"] > 0
    assert [end["bad"] for point in launch["points"] for end in point["ends"]] == [0] * 4


def test_doctor_takes_soft_roce_where_it_is_allowed(report: dict[str, Any]) -> None:
    doctor = report["doctor soft"]
    for name in PORTS:
        transfer = doctor["findings"][f"RDMA transfer {name}"]
        assert (transfer["verdict"], name in transfer["what"]) == ("ok", True), transfer
    required = doctor["findings"]["required rdma"]
    assert (required["verdict"], required["what"]) == ("ok", ", ".join(PORTS)), required
    assert doctor["code"] == 0
