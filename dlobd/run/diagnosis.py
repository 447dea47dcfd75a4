"""What a check of `dlobd doctor` says of one part of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One part. `remedy` is empty where nothing is to be done."""

    part: str
    verdict: Verdict
    what: str
    remedy: str = ""
