"""The captured bundles of tests/data, each read and computed at most once per test run."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

from dlobd.attribution.attribute import attribute
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.own_job import from_dict
from dlobd.recompute import computed as record
from dlobd.schema import Attribution, Trace
from dlobd.timeline.assemble import assemble

DATA = Path(__file__).parent / "data"
NAMES = ("killed-trainer", "native-run", "own-run", "quick-run", "sampled-run", "seen-run")
RUN_ID = "20260102T030405Z-0a1b"


def copy_of(name: str, directory: Path) -> Path:
    """Copies a bundle into a directory, where it can be changed."""
    return Path(shutil.copytree(DATA / name, directory / RUN_ID))


class Captured:
    """The captured bundles by name. What it returns is shared: tests must not change it."""

    @staticmethod
    @functools.cache
    def bundle(name: str) -> Bundle:
        """Returns a bundle as it is on disk."""
        return Bundle(DATA / name)

    @staticmethod
    @functools.cache
    def evidence(name: str) -> Evidence:
        """Returns the evidence of a bundle."""
        return Evidence(DATA / name)

    @staticmethod
    @functools.cache
    def trace(name: str) -> Trace:
        """Returns the trace of a bundle."""
        return assemble(Evidence(DATA / name))

    @staticmethod
    @functools.cache
    def attribution(name: str) -> Attribution:
        """Returns the attribution of a bundle's wall."""
        return attribute(Captured.trace(name))

    @staticmethod
    @functools.cache
    def stored(name: str) -> dict[str, Any]:
        """Returns the stored run.json of a bundle."""
        return Captured.bundle(name).read_json()

    @staticmethod
    @functools.cache
    def computed(name: str) -> dict[str, Any]:
        """Returns the members of run.json that follow from the evidence."""
        return record.computed(Captured.bundle(name), from_dict(Captured.stored(name)["configuration"])).to_json()
