"""Checks before a run that machine, cluster and network meet its requirements. Nothing is started."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dlobd.errors import DlobdError, SetupError

Verdict = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Result of one check of `dlobd doctor`, of a part of the machine or cluster."""

    part: str
    verdict: Verdict  # `absent` parts are supplied by dlobd or not needed; `broken` parts make a run fail
    what: str  # the observation
    remedy: str = ""  # the next step; empty if none is needed
    optional: bool = False  # a run works without this part, so the verdict never changes the exit code
    remote: bool = False  # the part belongs to an external cluster


class Absent(SetupError):
    """Result for a missing part that dlobd supplies, or that a run does not need."""


def diagnose(part: str, check: Callable[[], str], *, optional: bool = False, remote: bool = False) -> Diagnosis:
    """Run a check and return its Diagnosis. The check returns its observation as text; an error is the verdict."""
    try:
        return Diagnosis(part, "ok", check(), "", optional, remote)
    except DlobdError as error:
        verdict: Verdict = "absent" if isinstance(error, Absent) else "broken"
        return Diagnosis(part, verdict, error.what, error.remedy, optional, remote)
    except OSError as error:
        what, remedy = f"{type(error).__name__}: {error}", "fix the cause, then run dlobd doctor again"
        return Diagnosis(part, "broken", what, remedy, optional, remote)
