"""Verifies the files of a bundle by their hashes, and its report by recomputation from the evidence. Needs no cluster.

Stored hashes detect a changed file. They are unkeyed: anybody can change a bundle and seal it again. An expected hash,
kept outside the bundle, detects that as well. Recomputation detects a run.json that does not match the raw evidence.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from dlobd import __version__
from dlobd.bundle import files, reading
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, DlobdError, SetupError
from dlobd.experiment.files import key
from dlobd.experiment.own_job import from_dict
from dlobd.recompute import computed as record
from dlobd.recompute.limits import LimitExceeded
from dlobd.record.run import Check, Computed, Run
from dlobd.schema import Runnable

SHOWN = 5
"""Largest number of listed differences of one kind."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one part of the verification."""

    question: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification. `checks` are recomputed; empty if the recomputation failed."""

    answers: tuple[Answer, ...]
    checks: tuple[Check, ...] = ()

    @property
    def failed(self) -> list[str]:
        """The failed parts, and the codes of failed checks."""
        wrong = [answer.question for answer in self.answers if not answer.ok]
        return wrong + [check.code for check in self.checks if check.verdict == "fail"]


def verify(bundle: Bundle, against: str = "") -> Verification:
    """Verify a bundle. `against` is an expected bundle hash; empty skips that comparison. Raises BundleError if
    run.json is unreadable or the run was never submitted, and SetupError if the memory for the spans does not suffice.
    """
    run = bundle.read()
    try:
        problems = bundle.verify()
        answers = [_answer("files match their hashes", problems, f"{len(bundle.files())} files")]
    except BundleError as error:
        answers = [Answer("files match their hashes", False, error.what)]
    if against:
        found = str(bundle.digest)
        same = found == against.strip().lower()
        answers.append(
            Answer("hash matches the expected hash", same, found if same else f"{found} instead of {against}")
        )
    try:
        experiment = from_dict(asdict(run.configuration), "configuration of run.json")
    except DlobdError as error:
        return Verification((*answers, Answer("configuration is valid", False, error.what)))
    answers.append(_configuration(run, experiment, bundle))
    try:
        computed = record.computed(bundle, experiment)
    except SetupError:  # the bundle may be good
        raise
    except (DlobdError, LimitExceeded, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        cause = error.what if isinstance(error, DlobdError) else f"{type(error).__name__}: {error}"
        why = f"it cannot be recomputed: {cause}"
        return Verification((*answers, Answer("report matches the evidence", False, why)))
    return Verification((*answers, _report(run, computed, bundle.read_json())), computed.checks)


def _answer(question: str, differences: list[str], otherwise: str) -> Answer:
    more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
    return Answer(question, not differences, "; ".join(differences[:SHOWN]) + more if differences else otherwise)


def _configuration(run: Run, experiment: Runnable, bundle: Bundle) -> Answer:
    """Compare run.json's configuration with its key, and with the settings of the job."""
    question = "configuration, key and job agree"
    differences = []
    if key(experiment) != run.experiment_key:
        differences.append(f"the configuration has key {key(experiment)}, run.json has {run.experiment_key}")
    if experiment.name != run.experiment:
        differences.append(f"the configuration has name {experiment.name}, run.json has {run.experiment}")
    job = reading.read_json(bundle.path / files.JOB, dict[str, object])
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


def _report(run: Run, computed: Computed, written: Mapping[str, object]) -> Answer:
    """Compare the stored members of run.json with the recomputed ones. Members that the file `written` by an earlier
    dlobd lacks are not compared."""
    stored, found = (json.loads(json.dumps(record_.to_json())) for record_ in (run, computed))
    # a part may exceed its limit on one machine only
    skipped = {"omitted", "warnings", *(one.part for one in run.omitted)} if run.omitted else set()
    compared = [name for name in found if name in written and name not in skipped]
    differences = [line for name in compared for line in _differences(name, stored[name], found[name])]
    version = run.versions.get("dlobd")
    by = f" (written by dlobd {version}, recomputed by {__version__})" if version != __version__ else ""
    lines = [line + by for line in differences]
    return _answer("report matches the evidence", lines, f"{len(compared)} fields are equal{by}")


def _differences(path: str, stored: object, computed: object) -> Iterator[str]:
    """Yield a line for each value that differs, with its path."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in sorted(stored.keys() | computed.keys()):
            yield from _differences(f"{path}.{name}", stored.get(name), computed.get(name))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (old, new) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences(f"{path}[{index}]", old, new)
    elif stored != computed:
        yield f"{path}: {_short(stored)} stored, {_short(computed)} computed"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
