"""Verifies that a bundle is intact, and that its report follows from its evidence. Needs no cluster.

Stored hashes find a changed file. They are unkeyed: whoever changes a bundle can seal it again. A hash that was noted
elsewhere finds that too. Computing run.json anew from the raw evidence finds a report that does not follow from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dlobd import __version__
from dlobd.attribution import record
from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, DlobdError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.record.run import Check, Computed, Run
from dlobd.schema import Runnable

SHOWN = 5
"""Number of differences of one kind that are listed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question of the verification."""

    question: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification.

    Attributes:
        checks: as computed anew; empty if they cannot be computed.
    """

    answers: tuple[Answer, ...]
    checks: tuple[Check, ...] = ()

    @property
    def failed(self) -> list[str]:
        """The questions and the codes of the checks that failed."""
        wrong = [answer.question for answer in self.answers if not answer.ok]
        return wrong + [check.code for check in self.checks if check.verdict == "fail"]


def verify(bundle: Bundle, against: str = "") -> Verification:
    """Verifies a bundle.

    Args:
        against: the bundle's hash as it was noted elsewhere; empty if it was not.

    Raises:
        BundleError: run.json cannot be read, or the run was never submitted, so that there is nothing to compute.
    """
    run = bundle.read()
    try:
        problems = bundle.verify()
        answers = [_answer("files are as sealed", problems, f"{len(bundle.files())} files")]
    except BundleError as error:
        answers = [Answer("files are as sealed", False, error.what)]
    if against:
        found = str(bundle.digest)
        same = found == against.strip().lower()
        answers.append(Answer("hash is as noted", same, found if same else f"{found}, noted was {against}"))
    try:
        experiment = from_dict(asdict(run.configuration), "configuration of run.json")
    except DlobdError as error:
        return Verification((*answers, Answer("configuration is an experiment", False, error.what)))
    answers.append(_configuration(run, experiment, bundle))
    try:
        computed = record.computed(bundle, experiment)
    except (DlobdError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        why = f"it cannot be recomputed: {type(error).__name__}: {error}"
        return Verification((*answers, Answer("report follows from the evidence", False, why)))
    return Verification((*answers, _report(run, computed)), computed.checks)


def _answer(question: str, differences: list[str], otherwise: str) -> Answer:
    more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
    return Answer(question, not differences, "; ".join(differences[:SHOWN]) + more if differences else otherwise)


def _configuration(run: Run, experiment: Runnable, bundle: Bundle) -> Answer:
    """Compares run.json's configuration with its key, and with the settings that the job got."""
    question = "configuration, key and job agree"
    differences = []
    if key(experiment) != run.experiment_key:
        differences.append(f"the configuration has key {key(experiment)}, run.json says {run.experiment_key}")
    if experiment.name != run.experiment:
        differences.append(f"the configuration is of {experiment.name}, run.json says {run.experiment}")
    job = reading.read_json(bundle.path / files.JOB, dict[str, Any])
    if not isinstance(job, dict):
        reason = job.reason if isinstance(job, reading.Damaged) else "is missing"
        return _answer(question, [*differences, f"{files.JOB} {reason}"], "")
    configuration = json.loads(json.dumps(asdict(run.configuration)))
    differences += [
        f"{name}: {configuration[name]!r} in run.json, {job[name]!r} in job.json"
        for name in sorted(configuration.keys() & job.keys())
        if configuration[name] != job[name]
    ]
    return _answer(question, differences, f"key {run.experiment_key}")


def _report(run: Run, computed: Computed) -> Answer:
    """Compares the stored members of run.json with those that were computed anew."""
    stored, found = (json.loads(json.dumps(each.to_json())) for each in (run, computed))
    differences = [line for name in found for line in _differences(name, stored[name], found[name])]
    made = run.versions.get("dlobd")
    by = f" (made by dlobd {made}, this is {__version__})" if made != __version__ else ""
    lines = [line + by for line in differences]
    return _answer("report follows from the evidence", lines, f"{len(found)} fields, number for number{by}")


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
