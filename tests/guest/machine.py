"""Boots the guest for one command and hands back what it wrote and its exit status.

    /                 the host's files, below a tmpfs: what is written there is lost
    /run/guest        the control directory: what the guest runs, and what comes of it
    the directory `out`   the host's, to write to

Software devices rxe0 (10.9.0.1, on v0) and rxe1 (10.9.1.1, on v1) lie on a veth pair. An emulated CPU is slow: nothing
here is a measurement.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from . import initramfs
from .packages import ADMIN_PATH, QEMU, missing, program

MTU_BYTES = 9000
"""Soft-RoCE then packs 4096 bytes into a packet; with Ethernet's 1500 it is 1024, at half the speed."""

SHOWN_LINES = 4

STAGE2 = f"""
export PATH={ADMIN_PATH}
fail() {{ echo "guest: $*"; /run/busybox poweroff -f; }}
mkdir -p /dev/pts /dev/shm && mount -t devpts devpts /dev/pts && mount -t tmpfs tmpfs /dev/shm || fail "no /dev/shm"
ln -s /proc/self/fd /dev/fd && ln -s fd/0 /dev/stdin && ln -s fd/1 /dev/stdout || fail "no /dev/fd"
ln -s fd/2 /dev/stderr || fail "no /dev/stderr"
hostname guest && echo "10.9.0.1 guest" >> /etc/hosts
ulimit -l unlimited || fail "memory cannot be locked"
ip link set lo up && ip link add v0 mtu {MTU_BYTES} type veth peer name v1 mtu {MTU_BYTES} || fail "no veth pair"
for i in 0 1; do
  # both ends are on this host: what comes from the other end has an address of our own
  echo 1 > /proc/sys/net/ipv4/conf/v$i/accept_local && echo 0 > /proc/sys/net/ipv4/conf/v$i/rp_filter
  ip address add 10.9.$i.1/24 dev v$i && ip link set v$i up || fail "v$i cannot be set up"
done
for i in 0 1; do
  rdma link add rxe$i type rxe netdev v$i || fail "no Soft-RoCE on v$i"
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(cat /sys/class/infiniband/rxe$i/ports/1/state)" = "4: ACTIVE" ] && continue 2
    sleep 0.2
  done
  fail "rxe$i does not become active"
done
"""
"""What makes the devices; the host's sh runs it as process 1. The command follows."""


class GuestError(Exception):
    """The guest did not run the command to its end: why, in a line, with what its console said last."""


class TookTooLongError(GuestError):
    """It had not ended at its deadline."""


@dataclass(frozen=True, slots=True)
class Ended:
    """status: as a shell has it, 128 and more after a signal."""

    status: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """What is emulated. accelerator: `tcg`, or `kvm` on a host that really has it: /dev/kvm alone proves nothing."""

    memory_mb: int = 4096
    cpus: int = 2
    accelerator: str = "tcg"


def run(
    command: Sequence[str],
    machine: Machine | None = None,
    *,
    deadline_s: float = 300.0,
    out: Path | None = None,
    environment: Mapping[str, str] | None = None,
    live: tuple[BinaryIO, BinaryIO] | None = None,
) -> Ended:
    """Runs a command in the guest, in this directory and with this environment, and stops the guest.

    Args:
        command: the program and its arguments.
        machine: what is emulated.
        deadline_s: for all of it, with 5 to 15 s to boot.
        out: a directory that the guest writes to, at the same path.
        environment: of the command; None: this process's own, with this Python first in the path.
        live: where stdout and stderr also go while the guest runs.

    Raises:
        GuestError: it could not be started, or ended before the command; TookTooLongError: it was ended.
    """
    if lacking := missing():
        raise GuestError(f"no guest without {', '.join(lacking)}")
    machine, end = machine or Machine(), time.monotonic() + deadline_s
    with tempfile.TemporaryDirectory(prefix="dlobd-guest-") as name:
        control = Path(name)
        _prepare(control, command, _own_environment() if environment is None else environment, out)
        with _started(_qemu(machine, control, out), control) as process:
            _follow(process, control, end, live)
            if process.poll() is None:
                raise TookTooLongError(
                    f"the guest had not ended after {deadline_s:g} s, {_progress(control)}{_console(control)}"
                )
        return _ended(control, process.returncode)


def _own_environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', ADMIN_PATH)}"
    return {**os.environ, "PATH": path}


def _prepare(control: Path, command: Sequence[str], environment: Mapping[str, str], out: Path | None) -> None:
    kernel = initramfs.kernels()[-1]
    (control / "initramfs").write_bytes(initramfs.archive(kernel, Path(program("busybox"))))
    os.symlink(kernel.image, control / "kernel")
    settings = (f"{name}={value}" for name, value in environment.items())
    lines = [STAGE2]
    if out is not None:
        share = "-t 9p -o trans=virtio,version=9p2000.L,msize=512000 out"
        there = shlex.quote(str(out.resolve()))
        lines.append(f'mkdir -p {there} && mount {share} {there} || fail "the output directory cannot be mounted"')
    lines += [
        f'cd {shlex.quote(str(Path.cwd()))} || fail "the directory of the command is not there"',
        "umask 022",
        f"/run/busybox env -i -- {shlex.join([*settings, *command])} </dev/null >/run/guest/stdout 2>/run/guest/stderr",
        "echo $? > /run/guest/status",
        "sync",
        "/run/busybox poweroff -f",
    ]
    (control / "stage2").write_text("\n".join(lines) + "\n")


def _qemu(machine: Machine, control: Path, out: Path | None) -> list[str]:
    # QEMU 7.2 emulates a part of AVX2 wrongly: numpy's argsort of 9 integers is not sorted, and may crash
    cpu = "host" if machine.accelerator == "kvm" else "max,avx2=off"
    words = [QEMU, "-machine", "q35", "-accel", machine.accelerator, "-cpu", cpu, "-smp", str(machine.cpus)]
    words += ["-m", str(machine.memory_mb), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    words += ["-serial", f"file:{control / 'console'}"]
    words += ["-kernel", str(control / "kernel"), "-initrd", str(control / "initramfs")]
    words += ["-append", "console=ttyS0 panic=-1 quiet mitigations=off nokaslr edd=off"]
    words += _share("host", Path("/"), ",readonly=on") + _share("control", control)
    return words + (_share("out", out.resolve()) if out is not None else [])


def _share(tag: str, path: Path, more: str = "") -> list[str]:
    """A directory over 9p. multidevs: one share has files of several of the host's file systems."""
    place = str(path).replace(",", ",,")
    share = f"local,id={tag},path={place},security_model=none,multidevs=remap{more}"
    return ["-fsdev", share, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


@contextlib.contextmanager
def _started(command: list[str], control: Path) -> Iterator[subprocess.Popen[bytes]]:
    """QEMU, which is ended with the block, and by the kernel if this process is killed."""
    with (control / "qemu").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _follow(
    process: subprocess.Popen[bytes], control: Path, end: float, live: tuple[BinaryIO, BinaryIO] | None
) -> None:
    shown = [0, 0]
    running = True
    while running:
        running = process.poll() is None and time.monotonic() < end
        for i, stream in enumerate(live or ()):
            new = _read(control / ("stdout", "stderr")[i], shown[i])
            shown[i] += len(new)
            stream.write(new)
            stream.flush()
        if running:
            time.sleep(0.1)


def _ended(control: Path, qemu_status: int) -> Ended:
    status = _read(control / "status").strip()
    if not status.isdigit():
        raise GuestError(f"the guest ended {_progress(control)}, and QEMU with {qemu_status}{_console(control)}")
    return Ended(int(status), _read(control / "stdout"), _read(control / "stderr"))


def _progress(control: Path) -> str:
    return "while its command ran" if (control / "stdout").exists() else "while it booted"


def _console(control: Path) -> str:
    """Why, if it was said, and what QEMU and the console said last."""
    said = [_read(control / name).decode(errors="replace").splitlines() for name in ("qemu", "console")]
    lines = [text for some in said for line in some if (text := "".join(filter(str.isprintable, line)).strip())]
    reasons = [line for line in lines[:-SHOWN_LINES] if "Kernel panic" in line or line.startswith("guest: ")]
    return f"; last: {' | '.join(reasons[:1] + lines[-SHOWN_LINES:])}" if lines else "; nothing on its console"


def _read(path: Path, start: int = 0) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""
