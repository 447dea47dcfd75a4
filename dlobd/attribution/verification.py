"""Verifies that a bundle is intact, and that its report follows from its evidence. Needs no cluster.

Five questions: are the files those that were sealed; do configuration, key and job say the same; does the evidence say
the same of what only the client noted (`claims`); does computing the report anew from the raw evidence give it again,
number for number; and do independent sources agree (`audits`).

The first finds any change of a bundle whose hash was noted elsewhere: hashes are unkeyed, and who changes a bundle can
seal it again. The others find what was changed and sealed again, as far as the evidence tells it twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dlobd import __version__
from dlobd.attribution import claims, record
from dlobd.attribution.importers.evidence import Evidence
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, DlobdError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.record.run import Run
from dlobd.schema import Runnable

SHOWN = 5
"""So many differences of one kind are told in full."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question. `ok` is None where it could not be asked."""

    question: str
    ok: bool | None
    detail: str


def verify(bundle: Bundle, against: str = "") -> list[Answer]:
    """Asks all questions.

    Args:
        against: the bundle's hash as it was noted elsewhere; empty if it was not.

    Raises:
        BundleError: run.json cannot be read, or the run was never submitted, so that there is nothing to compute.
    """
    run = bundle.read()
    try:
        problems = bundle.verify()
        hashes = [_verified("files are as sealed", problems, f"{len(bundle.files())} files")]
    except BundleError as error:
        hashes = [Answer("files are as sealed", False, error.what)]
    if against:
        hashes.append(_noted(bundle, against))
    try:
        experiment = from_dict(asdict(run.configuration), "configuration of run.json")
    except DlobdError as error:
        return [*hashes, Answer("configuration is an experiment", False, error.what)]
    return [*hashes, _configuration(run, experiment, bundle), _claims(run, bundle), _report(run, experiment, bundle)]


def _noted(bundle: Bundle, against: str) -> Answer:
    """The bundle's own hash, and the one that was noted elsewhere."""
    found = bundle.digest
    same = found == against.strip().lower()
    return Answer("hash is as noted", same, f"{found}" if same else f"{found}, noted was {against}")


def _verified(question: str, differences: list[str], otherwise: str) -> Answer:
    more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
    return Answer(question, not differences, "; ".join(differences[:SHOWN]) + more if differences else otherwise)


def _configuration(run: Run, experiment: Runnable, bundle: Bundle) -> Answer:
    """run.json's configuration, its key, and what the job was told."""
    question = "configuration, key and job agree"
    differences = []
    if key(experiment) != run.experiment_key:
        differences.append(f"the configuration has key {key(experiment)}, run.json says {run.experiment_key}")
    if experiment.name != run.experiment:
        differences.append(f"the configuration is of {experiment.name}, run.json says {run.experiment}")
    try:
        job = json.loads((bundle.path / files.JOB).read_text())
    except (OSError, ValueError) as error:
        return _verified(question, [*differences, f"{files.JOB} cannot be read: {error}"], "")
    configuration = json.loads(json.dumps(asdict(run.configuration)))
    differences += [
        f"{name}: {configuration[name]!r} in run.json, {job[name]!r} in job.json"
        for name in sorted(configuration.keys() & job.keys())
        if configuration[name] != job[name]
    ]
    return _verified(question, differences, f"key {run.experiment_key}")


def _claims(run: Run, bundle: Bundle) -> Answer:
    """What run.json says that only the client knew."""
    question = "the evidence says the same of versions, machine, command and settings"
    try:
        return _verified(question, sorted(set(claims.contradicted(run, Evidence(bundle.path)))), "no contradiction")
    except (DlobdError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Answer(question, False, f"it cannot be read: {type(error).__name__}: {error}")


def _report(run: Run, experiment: Runnable, bundle: Bundle) -> Answer:
    """run.json computed anew, from the raw evidence."""
    question = "report follows from the evidence"
    try:
        found = record.computed(bundle, experiment).to_json()
    except (DlobdError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return Answer(question, False, f"it cannot be recomputed: {type(error).__name__}: {error}")
    stored, again = (json.loads(json.dumps(each.to_json())) for each in (run, Run.from_json(run.to_json() | found)))
    differences = [line for name in found for line in _differences(name, stored[name], again[name])]
    made = run.versions.get("dlobd")
    by = f" (made by dlobd {made}, this is {__version__})" if made != __version__ else ""
    return _verified(question, [line + by for line in differences], f"{len(found)} fields, number for number{by}")


def _differences(path: str, stored: Any, computed: Any) -> Iterator[str]:
    """The leaves that differ, with their path."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in sorted(stored.keys() | computed.keys()):
            yield from _differences(f"{path}.{name}", stored.get(name), computed.get(name))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for number, (one, other) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences(f"{path}[{number}]", one, other)
    elif stored != computed:
        yield f"{path}: {_short(stored)} stored, {_short(computed)} computed"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
