"""The first file system of the guest: busybox, kernel modules and `init`, as the cpio archive that the kernel takes.

Source of the format: Documentation/driver-api/early-userspace/buffer-format.rst of Linux ("newc").
"""

from __future__ import annotations

import lzma
import stat
from dataclasses import dataclass
from pathlib import Path

MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "veth", "rdma_rxe", "rdma_ucm", "sch_netem")
"""What is loaded, each after what it needs."""

INIT = """#!/bin/sh
export PATH=/bin
fail() { echo "guest: $*"; poweroff -f; }
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev || fail "no /proc, /sys or /dev"
for module in $(cat /modules/order); do insmod "/modules/$module" || fail "insmod $module failed"; done
share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $share,ro,cache=loose host /lower || fail "the host's files cannot be mounted"
mount -t tmpfs -o size=75% tmpfs /upper && mkdir /upper/files /upper/work || fail "no tmpfs"
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root || fail "no overlay"
mount -t tmpfs -o mode=755 tmpfs /root/run && mkdir /root/run/guest && cp /bin/busybox /root/run || fail "no /run"
mount -t 9p -o $share control /root/run/guest || fail "the control directory cannot be mounted"
mount --move /proc /root/proc && mount --move /sys /root/sys && mount --move /dev /root/dev || fail "nothing moves"
exec switch_root /root /bin/sh /run/guest/stage2
"""
"""Runs as process 1: the host's files read-only below a tmpfs, then `stage2` of the control directory."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """image: what QEMU boots. modules: its directory below /lib/modules."""

    image: Path
    modules: Path


def kernels(root: Path = Path("/")) -> list[Kernel]:
    """The kernels installed below `root` that have Soft-RoCE, the newest last."""
    found = []
    for dependencies in (root / "lib/modules").glob("*/modules.dep"):
        image = root / "boot" / f"vmlinuz-{dependencies.parent.name}"
        if image.exists() and _name("rdma_rxe") in _dependencies(dependencies):
            found.append(Kernel(image, dependencies.parent))
    return sorted(found, key=lambda kernel: [int(word) for word in _numbers(kernel.modules.name)])


def archive(kernel: Kernel, busybox: Path) -> bytes:
    """The archive, not compressed: an emulated machine takes longer to unpack than to read.

    Raises:
        LookupError: the kernel has not all of MODULES.
    """
    files = load_order(kernel)
    names = [path.name.removesuffix(".xz") for path in files]
    parts = [_entry(name, stat.S_IFDIR | 0o755) for name in ("bin", "dev", "lower", "modules", "proc", "root", "sys")]
    parts += [_entry("upper", stat.S_IFDIR | 0o755), _entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))]
    parts.append(_entry("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
    parts += [_entry(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox") for name in _APPLETS]
    parts.append(_entry("init", stat.S_IFREG | 0o755, INIT.encode()))
    parts.append(_entry("modules/order", stat.S_IFREG | 0o644, "\n".join(names).encode()))
    parts += [
        _entry(f"modules/{name}", stat.S_IFREG | 0o644, _content(path)) for name, path in zip(names, files, strict=True)
    ]
    return b"".join([*parts, _entry("TRAILER!!!", 0)])


_APPLETS = ("cat", "cp", "echo", "insmod", "mkdir", "mount", "poweroff", "sh", "switch_root")


def load_order(kernel: Kernel) -> list[Path]:
    """The files of MODULES, each after those that it needs.

    Raises:
        LookupError: the kernel has not all of them.
    """
    dependencies = _dependencies(kernel.modules / "modules.dep")
    builtin = {_name(line) for line in (kernel.modules / "modules.builtin").read_text().splitlines()}
    order: dict[str, None] = {}
    for module in MODULES:
        if _name(module) in builtin:
            continue
        if _name(module) not in dependencies:
            raise LookupError(f"the kernel {kernel.modules.name} has no module {module}")
        # modules.dep names what a module needs in such an order that the last has to be loaded first
        order |= dict.fromkeys(reversed(dependencies[_name(module)]))
    return [kernel.modules / file for file in order]


def _dependencies(path: Path) -> dict[str, list[str]]:
    """Name to the module's own file and those of all that it needs: lines `file: file file` of modules.dep(5)."""
    lines = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {_name(files[0]): files for files in lines if files}


def _name(file: str) -> str:
    return file.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def _numbers(version: str) -> list[str]:
    return "".join(letter if letter.isdecimal() else " " for letter in version).split()


def _content(module: Path) -> bytes:
    packed = module.read_bytes()
    return lzma.decompress(packed) if module.suffix == ".xz" else packed


def _entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    path = name.encode() + b"\0"
    # magic, then inode, mode, uid, gid, links, mtime, length, device of the file, device that it is, path, checksum
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
    return _padded(head) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
