"""Checks this machine for RDMA, IPoIB and shared memory, by which ranks can exchange gradients.

    1  RDMA devices                         5  interfaces of IPoIB
    2  their ports                          6  UCX, built with verbs
    3  hardware or software                 7  a loopback transfer of one second, counted by the device
    4  permissions of this user             8  the channels that the user requires

All diagnoses of 1 to 7 are optional: a run also works over Ethernet. The checks read a `Machine`.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dlobd.axes import CHANNELS
from dlobd.channel import Channel
from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.devices import ROOT, Device, Port, devices
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.network.verdict.rules import verdict
from dlobd.registry import unknown
from dlobd.run.preflight import Absent, Diagnosis, diagnose

LOCKED_BYTES = 64 << 20
"""Size of one fusion buffer. Verbs lock the memory that they use."""

PROBE_LIMIT_S = 60.0


def locked_limit_bytes() -> int | None:
    """Return the memory that this user may lock (`ulimit -l`); None if unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if limit == resource.RLIM_INFINITY else limit


def carry_bytes(device: str) -> TransportEvidence:
    """Send bytes over a device for a second, in a separate process, and return the evidence.
    Raises OSError if the process failed; the message is the last line that it wrote."""
    command = [sys.executable, "-m", "dlobd.network.verdict.probe", "ucx", "rdma", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"the probe did not end within {PROBE_LIMIT_S:.0f} s") from None
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or [f"the probe exited with code {done.returncode}"])[-1])
    return TransportEvidence.from_attrs(json.loads(done.stdout.splitlines()[-1]))


def ucx_with_verbs() -> str:
    """Describe the libucp that the ucx channel uses. Raises DlobdError if there is none with verbs, ImportError if
    Python packages are missing."""
    from dlobd.network.channels.ucx import library

    return library.describe(verbs=True)


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine to be checked."""

    root: Path = ROOT  # directory of `sys`, `dev` and `usr`
    addresses: Mapping[str, Sequence[str]] | None = None  # IPv4 addresses by interface; None: those of this host
    locked_limit_bytes: Callable[[], int | None] = locked_limit_bytes
    load: Callable[[str], object] = ctypes.CDLL
    ucx: Callable[[], str] = ucx_with_verbs
    carry_bytes: Callable[[str], TransportEvidence] = carry_bytes


def examine(machine: Machine | None = None) -> list[Diagnosis]:
    """Run checks 1 to 7. If there is no device, return a single diagnosis."""
    machine = machine or Machine()

    def check(part: str, function: Callable[..., str], *arguments: object) -> Diagnosis:
        return diagnose(part, partial(function, *arguments), optional=True)

    present = devices(machine.root)
    ipoib = check("IPoIB", _ipoib, machine)
    if not present:
        absent = check("RDMA", _no_device)
        return [absent, ipoib] if ipoib.verdict != "absent" else [absent]
    ucx = check("UCX", _ucx, machine)
    ports = {_name(device, port): (device, port) for device in present for port in device.ports}
    checked = {name: check(f"RDMA port {name}", _port, *port) for name, port in ports.items()}
    usable = [name for name, diagnosis in checked.items() if diagnosis.verdict == "ok"]
    return [
        check("RDMA devices", lambda: ", ".join(map(_describe, present))),
        *checked.values(),
        check("RDMA hardware", _hardware, present),
        check("RDMA access", _access, machine),
        ipoib,
        ucx,
        *(check(f"RDMA transfer {name}", _transfer, machine, name, ucx) for name in usable),
    ]


def channel(text: str) -> Channel:
    """Parse a channel that the user requires. Raises UsageError for an unknown one, and names the nearest."""
    names = CHANNELS.names()
    try:
        spec = Channel.parse(text)
    except ValueError as error:
        raise UsageError(f"--require: {error}.", "dlobd doctor --require rdma") from None
    if spec.transport not in names:
        raise UsageError(f"--require: {unknown('channel', spec.transport, names)}", "dlobd list channels")
    return spec


def required(
    spec: Channel, diagnoses: Sequence[Diagnosis], allow_soft: bool, machine: Machine | None = None
) -> Diagnosis:
    """Run check 8, that this machine can use a channel, from the `diagnoses` of `examine`. If it cannot, the verdict is
    broken. `allow_soft`: accept an RDMA device in software."""
    machine = machine or Machine()
    check = partial(_ip_required, spec, machine)
    if spec.transport == "rdma":
        check = partial(_rdma_required, spec.device, diagnoses, allow_soft, machine)
    elif spec.transport == "shm":
        check = partial(_shm_required, machine)
    return diagnose(f"required {spec}", check)


# ---- 1 to 3: devices and ports


def _no_device() -> str:
    raise Absent("no device in /sys/class/infiniband", "no action needed, unless a run uses channel=rdma")


def _name(device: Device, port: Port) -> str:
    return f"{device.name}:{port.number}"


def _describe(device: Device) -> str:
    if device.soft:
        return f"{device.name} (Soft-RoCE on {device.parent})" if device.parent else f"{device.name} (in software)"
    return f"{device.name} ({', '.join(filter(None, (device.driver, device.firmware))) or 'driver unknown'})"


def _port(device: Device, port: Port) -> str:
    # a software device has no rate: the kernel reports an arbitrary constant
    rate = "" if device.soft else f", {port.rate or 'rate unknown'}"
    kinds = sorted({gid.kind for gid in port.gids if gid.kind})
    gids = f"{len(port.gids)} GIDs" + f" ({', '.join(kinds)})" * bool(kinds)
    layer = port.link_layer or "link layer unknown"
    what = f"{port.state or 'state unknown'}, {port.phys_state or 'link unknown'}, {layer}{rate}, {gids}"
    if port.state == "INIT" and port.link_layer == "InfiniBand":
        raise SetupError(f"{what}: no subnet manager has configured the port", "start opensm, or ask its admin")
    if port.state != "ACTIVE" or port.phys_state not in ("LinkUp", None):
        below = device.parent or next((gid.interface for gid in port.gids if gid.interface), "")
        remedy = f"bring up {below}" if below else "connect its cable, and bring up its link"
        raise SetupError(what, remedy)
    if not port.gids:
        raise SetupError(f"{what}: the port has no GID", "give its interface an IPv4 address")
    return what


def _hardware(present: Sequence[Device]) -> str:
    hard = [device.name for device in present if device.soft is False]
    soft = [device.name for device in present if device.soft]
    if hard:
        also = f"; only in software: {', '.join(soft)}" if soft else ""
        return ", ".join(hard) + also
    if soft:
        what = f"{', '.join(soft)}: Soft-RoCE, functional only"
        raise Absent(what, "use it for tests; its times do not show the speed of RDMA")
    raise Absent("/sys has no information about the devices' hardware", "mount /sys")


# ---- 4: permission


def _access(machine: Machine) -> str:
    node = machine.root / "dev/infiniband"
    verbs = sorted(node.glob("uverbs*"))
    if not verbs:
        remedy = "modprobe ib_uverbs; in a container, add --device=/dev/infiniband"
        raise SetupError("/dev/infiniband has no uverbs device", remedy)
    closed = [path.name for path in (*verbs, node / "rdma_cm") if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        what = f"/dev/infiniband: {', '.join(closed)} cannot be read and written"
        raise SetupError(what, "modprobe rdma_ucm, or give this user access")
    limit_bytes = machine.locked_limit_bytes()
    if limit_bytes is not None and limit_bytes < LOCKED_BYTES:
        what = f"this user may lock {limit_bytes >> 10} KB of memory, and verbs need {LOCKED_BYTES >> 10} KB"
        raise SetupError(what, "ulimit -l unlimited, or memlock in /etc/security/limits.conf")
    try:
        machine.load("libibverbs.so.1")
    except OSError as error:
        what = f"libibverbs.so.1 cannot be loaded: {error}"
        raise SetupError(what, "install libibverbs1 and ibverbs-providers (or rdma-core)") from error
    places = ("usr/lib*/libibverbs", "usr/lib*/*/libibverbs")  # Red Hat, Debian
    providers = {path.name for place in places for path in machine.root.glob(f"{place}/*-rdmav*.so")}
    if not providers:
        raise SetupError("libibverbs has no provider", "install ibverbs-providers (or rdma-core)")
    limit = "all memory" if limit_bytes is None else f"{limit_bytes >> 20} MB"
    return f"{len(verbs)} uverbs devices, {len(providers)} providers; {limit} may be locked"


# ---- 5: IPoIB


def _interfaces(machine: Machine) -> list[interfaces.Interface]:
    return interfaces.interfaces(machine.root / "sys/class/net", machine.addresses)


def _ipoib(machine: Machine) -> str:
    ports = [one for one in _interfaces(machine) if one.type == interfaces.INFINIBAND]
    if not ports:
        raise Absent("no IPoIB interface (type 32)", "no action needed, unless a run uses channel=ipoib")
    descriptions = [
        f"{one.name} {one.state or 'state unknown'}, {one.mode or 'mode unknown'}, MTU {one.mtu_bytes or 'unknown'}, "
        f"{', '.join(one.addresses) or 'no IPv4 address'}"
        for one in ports
    ]
    if any(one.up and one.addresses for one in ports):
        return "; ".join(descriptions)
    remedy = f"bring {ports[0].name} up and give it an IPv4 address"
    raise SetupError("; ".join(descriptions), remedy)


# ---- 6 and 7: UCX, and bytes


def _ucx(machine: Machine) -> str:
    try:
        return machine.ucx()
    except ImportError as error:
        raise Absent(str(error), "pip install cffi mpich") from error


def _transfer(machine: Machine, name: str, ucx: Diagnosis) -> str:
    if ucx.verdict != "ok":
        raise Absent("not tried, because UCX is missing", ucx.remedy)
    try:
        plane = verdict("transfer", Channel(f"rdma@{name}"), [machine.carry_bytes(name)])
    except OSError as error:
        remedy = f"see the lines 'RDMA port {name}' and 'RDMA access' above"
        raise SetupError(f"no bytes were transferred: {error}", remedy) from error
    if plane.kind != "verbs":
        what = f"NOT RDMA, but {plane.kind}: {plane.evidence[-1]}"
        raise SetupError(what, "read the counters of this device while ib_write_bw runs")
    return plane.evidence[-1]


# ---- 8: required channels


def _rdma_required(wanted: str, diagnoses: Sequence[Diagnosis], allow_soft: bool, machine: Machine) -> str:
    ports = {_name(device, port): device for device in devices(machine.root) for port in device.ports}
    if not ports:
        raise SetupError("RDMA absent: no device", "install an adapter and its driver, or use channel=tcp")
    names = [name for name, device in ports.items() if wanted in ("", name, device.name)]
    if not names:
        raise SetupError(unknown("RDMA device", wanted, ports), f"--require rdma@{next(iter(ports))}")
    usable = [name for name in names if ports[name].soft is False or allow_soft]
    if not usable:
        what = f"{', '.join(dict.fromkeys(_describe(ports[name]) for name in names))}: in software, functional only"
        raise SetupError(what, "--allow-soft accepts it for tests; measurements need an adapter")
    broken = [one for one in diagnoses if one.part in ("RDMA access", "UCX") and one.verdict != "ok"]
    if broken:
        raise SetupError(f"{broken[0].part}: {broken[0].what}", broken[0].remedy)
    verdicts = {one.part: one for one in diagnoses}
    checks = {name: [verdicts.get(f"RDMA {kind} {name}") for kind in ("port", "transfer")] for name in usable}
    if good := [name for name, both in checks.items() if all(one and one.verdict == "ok" for one in both)]:
        return ", ".join(good)
    for one in checks[usable[0]]:
        if one and one.verdict != "ok":
            raise SetupError(f"{one.part}: {one.what}", one.remedy)
    raise SetupError(f"{usable[0]} appeared during the check", "run dlobd doctor again")


def _ip_required(spec: Channel, machine: Machine) -> str:
    ipoib = spec.transport == "ipoib"
    every = [one.name for one in _interfaces(machine) if not ipoib or one.type == interfaces.INFINIBAND]
    if not every:
        what = "IPoIB absent: no interface is of type 32" if ipoib else "there is no network interface"
        raise SetupError(what, "modprobe ib_ipoib, or use channel=tcp")
    errors = []
    for name in [spec.device] if spec.device else every:
        try:
            one, address = interfaces.resolve(name, ipoib, machine.root / "sys/class/net", machine.addresses)
        except DlobdError as error:
            errors.append(error)
        else:
            return f"{one.name} ({one.kind}), {address}, MTU {one.mtu_bytes}"
    raise errors[0]


def _shm_required(machine: Machine) -> str:
    place = machine.root / "dev/shm"
    if not os.access(place, os.W_OK | os.X_OK):
        raise SetupError("/dev/shm cannot be written", "mount a tmpfs there; in a container, set --shm-size")
    space = os.statvfs(place)
    free_bytes = space.f_bavail * space.f_frsize
    if free_bytes < LOCKED_BYTES:
        what = f"/dev/shm has {free_bytes >> 20} MB free, and a fusion buffer needs {LOCKED_BYTES >> 20} MB"
        raise SetupError(what, "enlarge it; in a container, set --shm-size=1g")
    return f"/dev/shm, {free_bytes >> 20} MB free"
