"""Result of each run: the first finding above noise, stored as JSON so that an interrupted command can resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.pathologies.stage import Ended
from bench.pathologies.table import Pathology
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.fields import decoded, plain
from dlobd.paths import replace_file

FILE = "result.json"
SOUND = ("ok", "invalid")
"""The statuses of runs that ended by themselves. An invalid run may have learnt too little; its times are good."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run.

    Attributes:
        bundle: its directory; empty if there is none.
        why_not: reason for a missing run or fault; empty if both were there.
        first: its first finding above noise; empty if there is none.
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
    """Return the result of a run that has ended."""
    if ended.bundle is None:
        return not_run(pathology, ended.failure or f"exit code {ended.code}, and no bundle", busy_percent)
    try:
        record = Bundle(ended.bundle).read_json()
    except BundleError as error:
        return not_run(pathology, error.line, busy_percent)
    why_not = f"its trigger never came: {', '.join(ended.missing)}" if ended.missing else ""
    return of_record(pathology, record, str(ended.bundle), why_not, busy_percent)


def of_record(
    pathology: Pathology, record: Mapping[str, Any], bundle: str, why_not: str, busy_percent: float
) -> Result:
    """Return the result of a run.json."""
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
    """Return the result of a pathology that could not run."""
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
    """Return the result of an earlier call; None if there is none, or if the table has changed since."""
    try:
        result: Result = decoded(Result, json.loads((directory(out, pathology) / FILE).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    same = (result.name, result.how, result.expected) == (pathology.name, pathology.how, pathology.expected)
    return result if same else None
