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
        return Bundle(DATA / name)

    @staticmethod
    @functools.cache
    def evidence(name: str) -> Evidence:
        return Evidence(DATA / name)

    @staticmethod
    @functools.cache
    def trace(name: str) -> Trace:
        return assemble(Evidence(DATA / name))

    @staticmethod
    @functools.cache
    def attribution(name: str) -> Attribution:
        return attribute(Captured.trace(name))

    @staticmethod
    @functools.cache
    def stored(name: str) -> dict[str, Any]:
        return Captured.bundle(name).read_json()

    @staticmethod
    @functools.cache
    def computed(name: str) -> dict[str, Any]:
        """Returns the members of run.json that follow from the evidence."""
        return record.computed(Captured.bundle(name), from_dict(Captured.stored(name)["configuration"])).to_json()
