"""The captured bundles of tests/data, each read and computed at most once per test run."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution, Trace
from dlobd.bundle import files, store
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.recompute import computed as record
from dlobd.timeline.assemble import assemble

DATA = Path(__file__).parent / "data"
NAMES = ("killed-trainer", "native-run", "own-run", "quick-run")
RUN_ID = "20260102T030405Z-0a1b"


def copy_of(name: str, directory: Path) -> Path:
    """Copies a bundle into a directory, where it can be changed."""
    return Path(shutil.copytree(DATA / name, directory / RUN_ID))


def note_sizes(path: Path) -> None:
    """Note the sizes of the files of an edited bundle as those at collection."""
    collected = path / files.COLLECTED
    noted = json.loads(collected.read_text())
    there = [name for name in noted["files"] if (path / name).is_file() and name != files.COLLECTED]
    noted["files"] = {name: (path / name).stat().st_size for name in there}
    collected.write_text(json.dumps(noted, indent=1))


def recomputed(bundle: Bundle, chosen: Any = None) -> dict[str, Any]:
    """Compute run.json of a copied bundle anew, for another experiment if given; store, seal and return it."""
    run = bundle.read_json()
    chosen = chosen or from_dict(run["configuration"])
    note_sizes(bundle.path)
    run |= {"configuration": dataclasses.asdict(chosen), "experiment_key": key(chosen), "metrics": {}}
    run = json.loads(json.dumps(run | record.computed(bundle, chosen).to_json()))
    store.validate(run, "test")
    bundle.write(run)
    bundle.seal()
    return run


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
