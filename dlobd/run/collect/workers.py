"""Copies logs of containers, and of executors that Spark's own Workers started, from directories of this machine."""

from collections.abc import Iterable
from pathlib import Path

from dlobd.bundle import files
from dlobd.bundle.store import Bundle

EXECUTOR_FILES = ("stdout", "stderr", "jvm.log", files.SPARK_LOG, "spans-", "hs_err")
"""Prefixes of the files to copy from an executor's working directory, which has other files too."""


def copy_logs(home: Path, applications: Iterable[str], bundle: Bundle) -> list[str]:
    """Copy logs and spans of executors below `home`, the SPARK_HOME of the Workers; return a line for each application
    without executors."""
    missing = []
    # others are of YARN, or have no executors
    for number, application_id in [one for one in enumerate(applications, 1) if one[1].startswith("app-")]:
        found = sorted(path for path in (home / "work" / application_id).glob("*") if path.is_dir())
        for path in found:
            copy_files(path, f"executor_{files.executor_key(number, path.name)}", bundle, EXECUTOR_FILES)
        if not found:
            missing.append(f"executors of {application_id}: no log directory")
    return missing


def copy_files(directory: Path, name: str, bundle: Bundle, prefixes: tuple[str, ...] = ("",)) -> None:
    """Copy logs and spans of a container or executor, from files whose names have one of the prefixes."""
    for path in sorted(p for p in directory.iterdir() if p.is_file() and p.name.startswith(prefixes)):
        part = "spans" if path.name.startswith("spans-") else files.CONTAINER_LOGS
        bundle.add(path, f"{part}/{name}/{path.name}")
