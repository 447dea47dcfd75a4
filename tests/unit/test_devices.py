"""RDMA devices and network interfaces in constructed trees of /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.devices import devices
from tests.counter_trees import GID, Host, put


def test_missing_values_are_none_and_ports_are_ordered(tmp_path: Path) -> None:
    assert devices(tmp_path) == ()
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    assert devices(tmp_path) == ()
    (tmp_path / "sys/class/infiniband/odd0/ports/1").mkdir(parents=True)
    (device,) = devices(tmp_path)
    assert (device.soft, device.parent, device.driver, device.firmware, device.bus) == (None,) * 5
    (port,) = device.ports
    assert (port.state, port.phys_state, port.rate, port.link_layer, port.gids) == (None, None, None, None, ())
    for number in (10, 2, 1):
        put(tmp_path / f"sys/class/infiniband/many0/ports/{number}/state", "1: DOWN")
    assert [port.number for port in devices(tmp_path)[0].ports] == [1, 2, 10]
    put(tmp_path / "sys/class/infiniband/odd0/ports/1/state", "4: ACTIVE")
    (tmp_path / "sys/class/infiniband/odd0/device").symlink_to(tmp_path / "sys/class/infiniband/odd0/device")
    assert devices(tmp_path)[0].bus is None


def test_a_hardware_device_has_the_values_of_the_kernel(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.interface("ib0", "10.1.0.1", 32, 2044)
    host.device("mlx5_0")
    (device,) = devices(tmp_path)
    (port,) = device.ports
    assert (device.name, device.soft, device.parent, device.firmware) == ("mlx5_0", False, None, "20.31.1014")
    assert (port.number, port.state, port.phys_state, port.link_layer) == (1, "ACTIVE", "LinkUp", "InfiniBand")
    assert port.rate == "100 Gb/sec (4X EDR)"
    assert [(gid.index, gid.gid, gid.kind, gid.interface) for gid in port.gids] == [(0, GID, None, None)]
    assert device.bus == str((tmp_path / "sys/class/net/ib0/device").resolve())
    link = tmp_path / "sys/class/infiniband/mlx5_0/device/driver"
    link.rmdir()
    (tmp_path / "sys/bus/pci/drivers/mlx5_core").mkdir(parents=True)
    link.symlink_to(tmp_path / "sys/bus/pci/drivers/mlx5_core")
    assert devices(tmp_path)[0].driver == "mlx5_core"


def test_soft_devices_are_soft_by_parent_or_path(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.interface("eth0", "10.0.0.1")
    host.device("rxe0", "Ethernet", "eth0", soft=True)
    (device,) = devices(tmp_path)
    assert (device.soft, device.parent, device.driver) == (True, "eth0", None)
    assert [(gid.kind, gid.interface) for gid in device.ports[0].gids] == [("RoCE v2", "eth0")]
    place = tmp_path / "sys/devices/virtual/infiniband/siw0"
    put(place / "ports/1/state", "4: ACTIVE")
    (tmp_path / "sys/class/infiniband/siw0").symlink_to(place)
    assert [device.soft for device in devices(tmp_path)] == [True, True]


ADDRESSES = {
    "eth0": ["192.0.2.7"],
    "ib0": ["198.51.100.7", "198.51.100.8"],
    "ib1": ["198.51.100.9"],
    "lo": ["127.0.0.1"],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, kind, state, mtu, speed, mode in (
        ("eth0", 1, "up", 1500, "-1", None),
        ("eth1", 1, "up", 9000, "100000", None),
        ("ib0", 32, "up", 2044, "56000", "datagram"),
        ("ib1", 32, "down", 2044, "", "connected"),
        ("lo", 772, "unknown", 65536, None, None),
    ):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "type").write_text(f"{kind}\n")
        (directory / "operstate").write_text(f"{state}\n")
        (directory / "mtu").write_text(f"{mtu}\n")
        if speed is not None:
            (directory / "speed").write_text(f"{speed}\n")
        if mode:
            (directory / "mode").write_text(f"{mode}\n")
    (tmp_path / "bonding_masters").write_text("")
    return tmp_path


def test_an_interface_has_the_values_of_the_kernel(tree: Path) -> None:
    """An unreported speed is None, not -1 or 0."""
    eth0, eth1, ib0, ib1, lo = interfaces.interfaces(tree, ADDRESSES)
    assert (eth0.name, eth0.kind, eth0.up, eth0.addresses) == ("eth0", "ethernet", True, ("192.0.2.7",))
    assert (eth0.mtu_bytes, eth0.speed_mbit_per_s, eth0.mode) == (1500, None, "")
    assert (eth1.speed_mbit_per_s, eth1.addresses) == (100_000, ())
    assert (ib0.kind, ib0.type, ib0.mode, len(ib0.addresses)) == ("infiniband", 32, "datagram", 2)
    assert (ib1.up, ib1.speed_mbit_per_s) == (False, None)
    assert (lo.kind, lo.up) == ("loopback", True)


def test_the_nominal_speed_of_a_virtual_interface_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of veth reports 10,000 Mbit/s; a bond has the speed of its interfaces."""
    monkeypatch.setattr(interfaces, "VIRTUAL", tmp_path / "devices/virtual")
    for name, place in (("bond0", "virtual"), ("eth0", "pci"), ("veth0", "virtual")):
        device = tmp_path / "devices" / place / "net" / name
        device.mkdir(parents=True)
        (device / "speed").write_text("10000\n")
        (tmp_path / "net").mkdir(exist_ok=True)
        (tmp_path / "net" / name).symlink_to(device)
    (tmp_path / "net/bond0/lower_eth0").symlink_to(tmp_path / "net/eth0")
    found = interfaces.interfaces(tmp_path / "net", {})
    assert [one.speed_mbit_per_s for one in found] == [10_000, 10_000, None]


def test_unreadable_values_are_none(tmp_path: Path) -> None:
    (tmp_path / "x0").mkdir()
    (tmp_path / "y0").mkdir()
    (tmp_path / "y0" / "type").write_text("65534\n")
    x0, y0 = interfaces.interfaces(tmp_path, {})
    assert (x0.type, x0.state, x0.mtu_bytes, x0.up, x0.kind) == (None, None, None, False, "of an unknown type")
    assert y0.kind == "type 65534"
    assert interfaces.interfaces(tmp_path / "none", {}) == []


@pytest.mark.parametrize(
    ("device", "infiniband", "name", "address"),
    [
        ("eth0", False, "eth0", "192.0.2.7"),
        ("ib0", False, "ib0", "198.51.100.7"),
        ("ib0", True, "ib0", "198.51.100.7"),
        ("192.0.2.7", False, "eth0", "192.0.2.7"),
        ("198.51.100.8", True, "ib0", "198.51.100.8"),
        ("192.0.2.0/24", False, "eth0", "192.0.2.7"),
        ("192.0.0.0/8", False, "eth0", "192.0.2.7"),
        ("198.51.100.8/32", True, "ib0", "198.51.100.8"),
        ("198.51.100.0/29", True, "ib0", "198.51.100.7"),
        ("127.0.0.0/8", False, "lo", "127.0.0.1"),
        ("127.9.8.7", False, "lo", "127.9.8.7"),
    ],
)
def test_a_device_is_a_name_an_address_or_a_network(
    tree: Path, device: str, infiniband: bool, name: str, address: str
) -> None:
    interface, found = interfaces.resolve(device, infiniband, tree, ADDRESSES)
    assert (interface.name, found) == (name, address)


@pytest.mark.parametrize(
    ("device", "infiniband", "why"),
    [
        (
            "10.9.0.0/16",
            False,
            r"no interface with an address in 10\.9\.0\.0/16; its addresses are 192\.0\.2\.7 \(eth0\), .* \(lo\)\.",
        ),
        ("10.9.0.1", False, r"no interface with the address 10\.9\.0\.1; its addresses are 192"),
        (
            "198.51.100.0/24",
            True,
            r"one interface .* in 198\.51\.100\.0/24: ib0 \(198\.51\.100\.7\), ib1 \(198\.51\.100\.9\)\. Next: .* ib0",
        ),
        ("198.51.100.9/32", False, "'ib1' is down"),
        ("198.51.100.9", True, "'ib1' is down"),
        ("192.0.2.0/24", True, "'eth0' is ethernet, not infiniband"),
        ("eth0", True, "'eth0' is ethernet, not infiniband.*choose ib0 or ib1"),
        ("lo", True, "'lo' is loopback, not infiniband"),
        ("ib1", True, "'ib1' is down"),
        ("eth1", False, "'eth1' has no IPv4 address"),
    ],
)
def test_an_unusable_network_or_interface_is_an_error(tree: Path, device: str, infiniband: bool, why: str) -> None:
    with pytest.raises(SetupError, match=why) as raised:
        interfaces.resolve(device, infiniband, tree, ADDRESSES)
    assert raised.value.remedy


def test_resolution_of_ambiguous_and_unknown_interfaces(tree: Path) -> None:
    both = {"eth0": ["192.0.2.7"], "ib0": ["192.0.2.7"]}
    assert interfaces.resolve("192.0.2.7", root=tree, addresses=both)[1] == "192.0.2.7"
    with pytest.raises(SetupError, match="more than one"):
        interfaces.resolve("192.0.2.0/24", root=tree, addresses=both)
    with pytest.raises(UsageError, match=r"no interface 'eht0'; did you mean 'eth0'\? .* eth0, eth1, ib0, ib1, lo$"):
        interfaces.resolve("eht0", root=tree, addresses=ADDRESSES)
    with pytest.raises(UsageError, match=r"no interface 'wlan7'\. Next: choose one of eth0"):
        interfaces.resolve("wlan7", root=tree, addresses=ADDRESSES)


def test_a_host_without_infiniband_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "type").write_text("1")
    with pytest.raises(SetupError, match=r"this host has no InfiniBand interface; use tcp@eth0"):
        interfaces.resolve("eth0", True, tmp_path, ADDRESSES)
