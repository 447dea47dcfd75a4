"""Stores the record of a run whose job has ended. Needs no cluster."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, SetupError, UsageError
from dlobd.experiment.own_job import from_dict
from dlobd.recompute.computed import computed

RECORD_BYTES = 16 << 20
"""Disk for run.json and hashes; a run of 64 executors needs 1 MB."""


def check_disk(directory: Path) -> None:
    """Raise SetupError if a directory has no room for a record."""
    if (free := shutil.disk_usage(directory).free) < RECORD_BYTES:
        what = f"The record needs {RECORD_BYTES / 1e6:.0f} MB of disk, and {directory} has {free / 1e6:.1f} MB."
        raise SetupError(what, f"free disk space, or dlobd import {directory} --to DIRECTORY")


def store(bundle: Bundle, to: Path | None = None) -> Bundle:
    """Compute the record of a run from its evidence; write and seal it, or only write run.json into another directory.
    Raises UsageError if the run is still running or waits for its collection, BundleError if the evidence was changed
    after the run or is unreadable, SetupError if memory or disk do not suffice."""
    run, target = bundle.read(), Bundle(to) if to else bundle
    if run.status == "running":
        raise UsageError(f"Run {run.run_id} is running, or waits for its collection.", "wait, or dlobd collect")
    changed = [line for line in bundle.verify() if not line.startswith("run.json:")] if bundle.digest else []
    if changed:
        raise BundleError(f"{bundle.path} differs from its hashes: {changed[0]}.", f"dlobd verify {bundle.path}")
    target.path.mkdir(parents=True, exist_ok=True)
    check_disk(target.path)
    experiment = from_dict(asdict(run.configuration), "configuration of run.json")
    target.write(replace(run.with_computed(computed(bundle, experiment, forgives=True)), process=None))
    if to is None:
        bundle.seal()
    return target
