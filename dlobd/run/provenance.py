"""The environment of a run: machine, versions, state of the checkout. Nothing is read at import."""

import importlib.metadata
import os
import platform as machine
import subprocess
from pathlib import Path

import psutil

from dlobd import __version__
from dlobd.hadoop.embedded.jars import HADOOP_VERSION
from dlobd.paths import PACKAGE

_PACKAGES = ("pyspark", "tensorflowonspark", "spark-tensorflow-distributor", "tensorflow", "hdfs", "numpy", "pandas")

OWN_SETTINGS = "hadoop_settings"
"""Member of `platform` with the user's Hadoop settings for the embedded cluster, if any."""

MACHINE = ("host", "processor", "cores", "memory_bytes", "kernel", OWN_SETTINGS)
"""Members of `platform` that distinguish machines and the clusters on them."""


def platform() -> dict[str, str | int | float | None]:
    """Describe this machine."""
    return {
        "system": machine.system(),
        "kernel": machine.release(),
        "architecture": machine.machine(),
        "distribution": _distribution(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1m": round(os.getloadavg()[0], 2),
        "host": machine.node(),
    }


def versions(java: str | None, hadoop: str | None = HADOOP_VERSION) -> dict[str, str | None]:
    """Return the versions of all components. `java` is the version of Spark's driver, if it is known."""
    versions: dict[str, str | None] = {
        "dlobd": __version__,
        "python": machine.python_version(),
        "java": java,
        "hadoop": hadoop,
    }
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def git() -> dict[str, str | bool | None] | None:
    """Return the commit of dlobd's checkout, and True if files have changed; None for an installed wheel."""
    top = PACKAGE.parent
    if not (top / ".git").exists():
        return None

    def ask(*arguments: str) -> str | None:
        try:
            command = ["git", "-C", str(top), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    changes = ask("status", "--porcelain", "--untracked-files=no")
    return {"commit": ask("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}


def _distribution() -> str | None:
    try:
        return machine.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _processor() -> str | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
