"""What became of each run: its first finding above noise, kept as JSON so that a call that was ended goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.pathologies.stage import Ended
from bench.pathologies.table import Pathology
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.paths import replace_file

FILE = "result.json"
SOUND = ("ok", "invalid")
"""Runs that ended by themselves. An invalid one has learnt too little, which is no matter of time."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        bundle: its directory; empty where there is none.
        why_not: why the run could not be made, or its pathology; empty where it was.
        first: its first finding above noise; empty: it has none.
        above_noise: all of them.
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
        """Whether the run was made, ended, and says first what is expected; of a healthy one: says nothing."""
        return not self.why_not and self.status in SOUND and self.first == self.expected


def of_run(pathology: Pathology, ended: Ended, busy_percent: float) -> Result:
    """The result of a run that has ended."""
    if ended.bundle is None:
        return unmade(pathology, ended.said or f"exit code {ended.code}, and no bundle", busy_percent)
    try:
        record = Bundle(ended.bundle).read_json()
    except BundleError as error:
        return unmade(pathology, error.line, busy_percent)
    why_not = f"its moment never came: {', '.join(ended.unmade)}" if ended.unmade else ""
    return of_record(pathology, record, str(ended.bundle), why_not, busy_percent)


def of_record(
    pathology: Pathology, record: Mapping[str, Any], bundle: str, why_not: str, busy_percent: float
) -> Result:
    """The result of a run.json."""
    loud = [one for one in record.get("findings") or () if one["above_noise"]]
    first: Mapping[str, Any] = loud[0] if loud else {"finding": "", "saves_ns": 0}
    return Result(
        pathology.name, pathology.how, pathology.expected, bundle, record["status"], record.get("reason") or "",
        why_not, first["finding"], first["saves_ns"], record["wall_ns"] or 0, tuple(one["finding"] for one in loud),
        busy_percent,
    )  # fmt: skip


def unmade(pathology: Pathology, why_not: str, busy_percent: float) -> Result:
    """The result of what could not be made."""
    return Result(
        pathology.name, pathology.how, pathology.expected, "", "", "", why_not, "", 0, 0, (), busy_percent
    )  # fmt: skip


def directory(out: Path, pathology: Pathology) -> Path:
    """Where a run's bundle and result lie."""
    return out / "".join(letter if letter.isalnum() else "-" for letter in pathology.name.lower())


def store(out: Path, pathology: Pathology, result: Result) -> None:
    """Writes a result."""
    path = directory(out, pathology)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / FILE, (json.dumps(asdict(result), indent=1) + "\n").encode())


def stored(out: Path, pathology: Pathology) -> Result | None:
    """The result of an earlier call; None where there is none, or the table says something else by now."""
    try:
        kept = json.loads((directory(out, pathology) / FILE).read_text())
        result = Result(**{**kept, "above_noise": tuple(kept["above_noise"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    same = (result.name, result.how, result.expected) == (pathology.name, pathology.how, pathology.expected)
    return result if same else None
