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
from dlobd.axes import RENAMED_EXCHANGES
from dlobd.bundle import files, reading
from dlobd.bundle.run import Run
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, DlobdError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.schema import Runnable

SINCE = {
    "audits": 3,
    "noise": 3,
    "page_cache": 6,
    "resources": 6,
    "spark_metrics": 6,
    "throughput": 6,
    "epochs": 6,
    "first_touch": 6,
    "time_to_accuracy": 6,
    "core_waits": 9,
    "imports": 9,
    "environment_cache": 9,
}
"""The schema version that brought a field: an older record cannot contain what is computed today."""

ROWS_OF_0_SINCE = 6
"""The schema version since which a layer that was at work, but held nobody up, has a row."""

DEGREES_SINCE = 8
"""The schema version since which layers tell how well their time is known, and causes where their length is from."""

AUDITS_SINCE = 9
"""The schema version since which a record has all of today's audits."""

MISSING_SINCE = 9
"""The schema version since which a run warns of each source that is missing; before, only of what collection told."""

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
    job = reading.read_json(bundle.path / files.JOB, dict[str, Any])
    if not isinstance(job, dict):
        reason = job.reason if isinstance(job, reading.Damaged) else "is missing"
        return _verified(question, [*differences, f"{files.JOB} {reason}"], "")
    if job.get("exchange") in RENAMED_EXCHANGES:
        job["exchange"] = RENAMED_EXCHANGES[job["exchange"]]
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
        found = record.computed(bundle, experiment)
    except (DlobdError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return Answer(question, False, f"it cannot be recomputed: {type(error).__name__}: {error}")
    stored, again = (json.loads(json.dumps(each.to_json())) for each in (run, Run.from_json(run.to_json() | found)))
    version = _version_as_written(bundle)
    said = [name for name in found if SINCE.get(name, 0) <= version]
    if version < ROWS_OF_0_SINCE:
        there = {row["layer"] for row in stored["layers"]}
        again["layers"] = [row for row in again["layers"] if row["ns"] or row["layer"] in there]
    if version < DEGREES_SINCE:
        stored["layers"], again["layers"] = ([*map(_without_degrees, each["layers"])] for each in (stored, again))
    if version < AUDITS_SINCE:
        known = {one["audit"] for one in stored["audits"] or ()}
        again["audits"] = [one for one in again["audits"] if one["audit"] in known]
    if version < MISSING_SINCE:
        for each in (stored, again):
            each["warnings"] = [line for line in each["warnings"] if not line.startswith(record.MISSING)]
    differences = [line for name in said for line in _differences(name, stored[name], again[name])]
    made = run.versions.get("dlobd")
    by = f" (made by dlobd {made}, this is {__version__})" if made != __version__ else ""
    return _verified(question, [line + by for line in differences], f"{len(said)} fields, number for number{by}")


def _without_degrees(layer: dict[str, Any]) -> dict[str, Any]:
    told = {"measured_ns": None, "between_marks_ns": None, "named_wait_ns": None}
    return {**layer, **told, "causes": [cause[:2] for cause in layer["causes"]]}


def _version_as_written(bundle: Bundle) -> int:
    """The version of run.json before the upgrade; it has been read, so it is there."""
    return int(json.loads((bundle.path / files.RUN).read_bytes())["schema_version"])


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
