"""Results of the runs: storage as JSON, from which an interrupted command resumes, and tables of docs/results.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import publish
from bench.pathologies.stage import Ended
from bench.pathologies.table import Pathology
from bench.tables import markdown
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.fields import decoded, plain
from dlobd.paths import replace_file
from dlobd.record.run import Run

NAME = "pathologies"
FILE = "result.json"
SOUND = ("ok", "invalid")
"""Statuses of runs that ended without interruption. An invalid run may miss its accuracy, but its times are valid."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run.

    Attributes:
        bundle: directory of the run's bundle; empty if there is no bundle.
        why_not: reason for a missing run or fault; empty if run and fault exist.
        first: first finding above noise; empty if there is no such finding.
        above_noise: all findings above noise.
    """

    name: str
    how: str
    expected: str
    bundle: str
    status: str
    reason: str
    why_not: str
    first: str
    saves_ns: int
    wall_ns: int
    above_noise: tuple[str, ...]
    busy_percent: float

    @property
    def right(self) -> bool:
        """True if the run ended and has the expected first finding; a healthy run must have none."""
        return not self.why_not and self.status in SOUND and self.first == self.expected


def of_run(pathology: Pathology, ended: Ended, busy_percent: float) -> Result:
    """Build the result of a finished run."""
    if ended.bundle is None:
        return not_run(pathology, ended.failure or f"exit code {ended.code}, and no bundle", busy_percent)
    try:
        record = Bundle(ended.bundle).read_json()
    except BundleError as error:
        return not_run(pathology, error.line, busy_percent)
    why_not = f"the trigger did not occur: {', '.join(ended.missing)}" if ended.missing else ""
    return of_record(pathology, record, str(ended.bundle), why_not, busy_percent)


def of_record(
    pathology: Pathology, record: Mapping[str, Any], bundle: str, why_not: str, busy_percent: float
) -> Result:
    """Build the result from a run.json."""
    loud = [finding for finding in record.get("findings") or () if finding["above_noise"]]
    first: Mapping[str, Any] = loud[0] if loud else {"finding": "", "saves_ns": 0}
    return Result(
        name=pathology.name,
        how=pathology.how,
        expected=pathology.expected,
        bundle=bundle,
        status=record["status"],
        reason=record.get("reason") or "",
        why_not=why_not,
        first=first["finding"],
        saves_ns=first["saves_ns"],
        wall_ns=record["wall_ns"] or 0,
        above_noise=tuple(finding["finding"] for finding in loud),
        busy_percent=busy_percent,
    )


def not_run(pathology: Pathology, why_not: str, busy_percent: float) -> Result:
    """Build the result of a pathology that could not run."""
    return Result(pathology.name, pathology.how, pathology.expected, "", "", "", why_not, "", 0, 0, (), busy_percent)


def directory(out: Path, pathology: Pathology) -> Path:
    """Return the directory of a run's bundle and result."""
    return out / "".join(letter if letter.isalnum() else "-" for letter in pathology.name.lower())


def store(out: Path, pathology: Pathology, result: Result) -> None:
    """Store a result."""
    path = directory(out, pathology)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / FILE, (json.dumps(plain(result), indent=1) + "\n").encode())


def stored(out: Path, pathology: Pathology) -> Result | None:
    """Read the stored result of an earlier call; None if it is missing, or if the table has changed since."""
    try:
        result: Result = decoded(Result, json.loads((directory(out, pathology) / FILE).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    same = (result.name, result.how, result.expected) == (pathology.name, pathology.how, pathology.expected)
    return result if same else None


# ---- the page


def write(docs: Path, made: Sequence[Result], healthy: Sequence[Result]) -> Path:
    """Write both tables and the totals between the page's markers."""
    busy = [result.busy_percent for result in (*made, *healthy) if result.bundle]
    columns = ["construction", "saves at most", "wall", "right?"]
    sick = ["pathology", columns[0], "expected", "first above noise", *columns[1:]]
    parts = [
        markdown(sick, ([one.name, one.how, one.expected, *_found(one)] for one in made)),
        "Healthy runs; they should have no finding above noise:",
        markdown(
            ["run", columns[0], "above noise", *columns[1:]], ([one.name, one.how, *_found(one)] for one in healthy)
        ),
        f"**{summary(made, healthy)}**",
    ]
    return publish.of_runs(docs, NAME, _runs((*made, *healthy)), busy, parts)


def summary(made: Sequence[Result], healthy: Sequence[Result]) -> str:
    """Format the sentence with the totals."""
    right = sum(result.right for result in made)
    loud = sum(bool(result.above_noise) for result in healthy)
    lost = sum(bool(result.why_not) or not result.wall_ns for result in healthy)
    rest = f"; {lost} of them could not run" if lost else ""
    return f"Right in {right} of {len(made)}; findings above noise in {loud} of {len(healthy)} healthy runs{rest}."


def line(result: Result) -> str:
    """Format the progress line of a finished run."""
    if result.why_not:
        return f"{result.name}: could not run: {result.why_not}"
    found = f"{result.first} ({_s(result.saves_ns)} of {_s(result.wall_ns)})" if result.first else "nothing above noise"
    return f"{result.name}: {result.status}, {found}; expected {result.expected or 'nothing'}: {_verdict(result)}"


def _found(result: Result) -> list[str]:
    if result.why_not and not result.bundle:
        return [f"not run: {_plain(result.why_not)}", "-", "-", "no"]
    notes = [f"no fault: {_plain(result.why_not)}"] if result.why_not else []
    notes += [f"run {result.status}: {_plain(result.reason)}"] if result.status != "ok" else []
    first = "; ".join([result.first or "none", *notes])
    return [first, _s(result.saves_ns) if result.first else "-", _s(result.wall_ns), _verdict(result)]


def _verdict(result: Result) -> str:
    return "yes" if result.right else "no"


def _plain(text: str) -> str:
    """Remove characters that would end a cell."""
    return " ".join(text.replace("|", "/").split())


def _s(ns: int) -> str:
    return f"{ns / 1e9:.1f} s"


def _runs(every: Sequence[Result]) -> list[Run]:
    """Read the records of successful runs."""
    records = []
    for result in every:
        if result.bundle and result.status == "ok":
            try:
                records.append(Bundle(Path(result.bundle)).read())
            except BundleError:
                continue  # the bundle was removed after the result was stored
    return records
