"""The RDMA devices of a host, as the kernel shows them in /sys, without any vendor library.

    /sys/class/infiniband/DEVICE                    a link; for a software device, it points below devices/virtual
    .../fw_ver, hca_type, device/driver, parent     `parent` exists only for Soft-RoCE: its interface
    .../ports/N/state, phys_state, rate, link_layer
    .../ports/N/gids/I, gid_attrs/types/I, gid_attrs/ndevs/I

Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux; `parent` is in drivers/infiniband/sw/rxe/rxe_verbs.c.
Values that cannot be read are None, never a guess. `dlobd.run.preflight.channels` decides whether a device is usable.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")  # parent directory of `sys` and `proc`; tests use constructed trees
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"  # unset row of the GID table


@dataclass(frozen=True, slots=True)
class Gid:
    """Address of a port (GID). `kind` is `IB/RoCE v1` or `RoCE v2`; `interface` is empty on native InfiniBand links."""

    index: int
    gid: str
    kind: str | None
    interface: str | None


@dataclass(frozen=True, slots=True)
class Port:
    """Port with the kernel's values: ACTIVE, LinkUp, 100 Gb/sec (4X EDR), InfiniBand or Ethernet."""

    number: int
    state: str | None
    phys_state: str | None
    rate: str | None
    link_layer: str | None
    gids: tuple[Gid, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """RDMA device of this host."""

    name: str
    ports: tuple[Port, ...]
    soft: bool | None  # True for a software driver, which is useful for tests only; its `rate` is fictitious
    parent: str | None  # the interface that carries a software device's packets
    driver: str | None
    firmware: str | None
    bus: str | None  # path of its hardware in /sys, the same for all interfaces of the hardware


def read_text(path: Path) -> str | None:
    """Return the stripped text of a file of /sys or /proc; None if it is missing, empty or unreadable."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip("\0 \t\r\n") or None
    except OSError:  # reading an unset row of the GID table fails with EINVAL
        return None


def read_number(path: Path) -> int | None:
    """Return the integer in a file; None if the file has no integer."""
    text = read_text(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def bus_of(link: Path) -> str | None:
    """Return the path in /sys of the hardware of a device or an interface; None if there is none."""
    hardware = _target(link / "device")
    return str(hardware) if hardware else None


def _target(link: Path) -> Path | None:
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):  # no such link, or a cycle of links
        return None


def devices(root: Path = ROOT) -> tuple[Device, ...]:
    """Return all RDMA devices, sorted by name; empty if the kernel has no RDMA support."""
    return tuple(_device(path) for path in listed(root / "sys/class/infiniband"))


def _device(path: Path) -> Device:
    parent, driver = read_text(path / "parent"), _target(path / "device/driver")
    return Device(
        path.name,
        tuple(_port(port) for port in sorted(listed(path / "ports"), key=_number)),
        _soft(path, parent),
        parent,
        driver.name if driver else None,
        read_text(path / "fw_ver"),
        bus_of(path),
    )


def _soft(path: Path, parent: str | None) -> bool | None:
    if parent is not None:
        return True
    place = str(_target(path) or "")
    return "/devices/virtual/" in place if "/devices/" in place else None


def _port(path: Path) -> Port:
    return Port(
        _number(path),
        _word(path / "state"),
        _word(path / "phys_state"),
        read_text(path / "rate"),
        read_text(path / "link_layer"),
        tuple(gid for row in sorted(listed(path / "gids"), key=_number) if (gid := _gid(path, row))),
    )


def _gid(port: Path, row: Path) -> Gid | None:
    gid = read_text(row)
    if gid is None or gid == NO_GID:
        return None
    attrs = port / "gid_attrs"
    return Gid(_number(row), gid, read_text(attrs / "types" / row.name), read_text(attrs / "ndevs" / row.name))


def _word(path: Path) -> str | None:
    text = read_text(path)
    return text.rpartition(":")[2].strip() or None if text else None  # `4: ACTIVE`


def listed(directory: Path) -> list[Path]:
    """Return the sorted entries of a directory; empty if it cannot be read."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _number(path: Path) -> int:
    return int(path.name) if path.name.isdecimal() else 0
