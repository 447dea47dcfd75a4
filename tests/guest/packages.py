"""What a host lacks to run the guest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import initramfs

QEMU = "qemu-system-x86_64"
PROGRAMS = {
    QEMU: "qemu-system-x86",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "rdma": "iproute2",
    "ibv_rc_pingpong": "ibverbs-utils",
}
LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libibverbs/librxe-rdmav*.so": "ibverbs-providers",
}
"""What has to be there, libraries below /usr/lib/ARCHITECTURE, and the Debian package that has it."""

ADMIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> list[str]:
    """What is not installed, with the package that has it; `packages.txt` names all, with their reasons."""
    found = [f"{name} ({package})" for name, package in PROGRAMS.items() if not program(name)]
    for pattern, package in LIBRARIES.items():
        if not any(Path("/usr/lib").glob(f"*/{pattern}")):
            found.append(f"{pattern} ({package})")
    if not initramfs.kernels():
        found.append("a kernel with rdma_rxe (linux-image-amd64)")
    return found


def program(name: str) -> str:
    """Where it is, also where only root looks; empty if nowhere."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{ADMIN_PATH}") or ""
