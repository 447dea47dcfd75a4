"""RDMA devices in /sys; missing values are None."""

from __future__ import annotations

from pathlib import Path

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
