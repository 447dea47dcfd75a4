"""Checks before a run that machine, cluster and network meet its requirements. Nothing is started."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dlobd.errors import DlobdError, SetupError

Verdict = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Result of one check of `dlobd doctor`.

    Args:
        part: the part of the machine or cluster.
        verdict: `absent` parts are supplied by dlobd or not needed; `broken` parts make a run fail.
        what: the observation.
        remedy: the next step; empty if none is needed.
        optional: a run works without this part, so the verdict never changes the exit code.
        remote: the part belongs to an external cluster.
    """

    part: str
    verdict: Verdict
    what: str
    remedy: str = ""
    optional: bool = False
    remote: bool = False


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
