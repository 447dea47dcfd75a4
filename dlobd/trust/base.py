"""Base types and helpers of checks. A check compares one quantity from two independent sources.

A check detects measurement bugs of dlobd, Spark or Hadoop. Verdicts: pass, fail, unknown. A check is `unknown` if a
source is incomplete, or if the evidence has a harmless explanation of a difference (a doubt). Legitimate behaviour of a
run never fails a check. A check returns None for runs to which it does not apply.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import EvidenceKind, MissingEvidence, ended_well
from dlobd.evidence.expected.logs import LIMITS
from dlobd.record.run import Check, Number, Plane, Verdict
from dlobd.schema import Clip, Experiment, OwnJob, Runnable

NS_PER_S, NS_PER_MS = 10**9, 10**6

BUSY_NS = 1_000_000_000
"""A busy machine may suspend a thread for this long between an event and the timestamp that records it.

Measured with seven runnable threads per core: at most 20 ms between two clock readings, and 340 ms between an event of
Spark's driver and its log line.
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of a check. `clips`: corrections of the spans; `planes`: transport per message plane, None for a
    user's script; `absences`: sources that are missing or incomplete."""

    evidence: Evidence
    experiment: Runnable
    clips: tuple[Clip, ...]
    wall_ns: int
    planes: tuple[Plane, ...] | None
    absences: tuple[MissingEvidence, ...]

    @property
    def training(self) -> Experiment:
        """The experiment of a check that applies only to dlobd's own training job."""
        assert isinstance(self.experiment, Experiment)
        return self.experiment


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison.

    holds: None if the sources do not allow a decision.
    message: both figures in plain words, or the reason why no decision is possible.
    doubt: a harmless explanation of a difference; a check with a doubt never fails.
    """

    holds: bool | None
    message: str
    left: Number | None = None
    right: Number | None = None
    doubt: str = ""


def unknown(message: str) -> Compared:
    """Return a comparison with the verdict unknown."""
    return Compared(None, message)


Comparison = Callable[[Facts], Compared | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """The definition of a check.

    code: a stable name, which other programs may depend on.
    sources: descriptions of the sources of the left and the right figure.
    needs: the check is unknown if a source of one of these kinds is incomplete.
    whole: the check applies only to successful jobs with a done-marker from each rank.
    training: the check applies only to dlobd's own training job.
    """

    code: str
    sources: tuple[str, str]
    compare: Comparison
    needs: tuple[EvidenceKind, ...]
    whole: bool
    training: bool

    def decide(self, facts: Facts) -> Check | None:
        """Apply the rule to a run; return None if it does not apply."""
        if (self.whole and not completed(facts.evidence)) or (self.training and isinstance(facts.experiment, OwnJob)):
            return None
        found = self.compare(facts)
        if found is None:
            return None
        lacking = next((absence for absence in facts.absences if absence.kind in self.needs), None)
        if lacking is not None:
            found = unknown(f"{lacking.what} {lacking.how}")
        elif found.holds is False and found.doubt:
            found = Compared(None, f"{found.message}; this may be harmless: {found.doubt}", found.left, found.right)
        verdict: Verdict = "unknown" if found.holds is None else "pass" if found.holds else "fail"
        left_source, right_source = self.sources
        left, right = json_number(found.left), json_number(found.right)
        return Check(self.code, verdict, found.message, left, left_source, right, right_source)

    @property
    def description(self) -> str:
        """The first sentence of the comparison's docstring, without "Check that"."""
        text = " ".join((self.compare.__doc__ or "").split()).removeprefix("Check that ")
        return f"{text[:1].upper()}{text[1:].partition('. ')[0].removesuffix('.')}."


class Rules(list[Rule]):
    """The rules of a module, in the order of their comparisons, with defaults for `whole` and `training`."""

    def __init__(self, whole: bool = False, training: bool = False) -> None:
        self._whole, self._training = whole, training

    def add(
        self, code: str, left: str, right: str, *needs: EvidenceKind, whole: bool | None = None
    ) -> Callable[[Comparison], Comparison]:
        """Return a decorator that adds a comparison; `left` and `right` are the sources of its figures."""

        def added(compare: Comparison) -> Comparison:
            is_whole = self._whole if whole is None else whole
            self.append(Rule(code, (left, right), compare, needs, is_whole, self._training))
            return compare

        return added


def in_applications(compare: Comparison) -> Comparison:
    """Return a comparison of each application of a run: the first that fails, or is unknown, or else the first."""

    @wraps(compare)
    def compared(facts: Facts) -> Compared | None:
        each = (compare(replace(facts, evidence=one)) for one in facts.evidence.applications)
        return min(filter(None, each), key=lambda one: (False, None, True).index(one.holds), default=None)

    return compared


def json_number(value: Number | None) -> Number | None:
    """Replace NaN and infinity, which JSON lacks, with None; the message of a check shows them."""
    return value if value is not None and math.isfinite(value) else None


# ---- helpers shared by several checks


def training_job(evidence: Evidence) -> dict[str, Any]:
    """Return the settings of dlobd's own training job; empty for a user's script."""
    return {} if evidence.topology.user_script else evidence.job


def completed(evidence: Evidence) -> bool:
    """Return True if the job succeeded and each rank left a done-marker: totals over the job must then agree."""
    # in client mode YARN reports SUCCEEDED for failed jobs, so the done-markers decide
    return ended_well(evidence) and len(evidence.results) >= training_job(evidence).get("workers", 0)


def cut_short(evidence: Evidence) -> bool:
    """Return True if a limit ended training before its last epoch: ranks may have read input without using it."""
    job = training_job(evidence)
    taken = [result["steps"] for result in evidence.results.values()]
    return any(job.get(limit) for limit in LIMITS) and bool(taken) and min(taken) < job["steps"]


def passes(evidence: Evidence) -> int | None:
    """Return the number of times that the job reads its input. The barrier launcher feeds later epochs from memory."""
    job = training_job(evidence)
    if not job:
        return None
    return 1 if job["input"] == "feed" and job["launcher"] == "barrier" else int(job["epochs"])


def external(evidence: Evidence) -> str:
    """Return a doubt if the cluster is external."""
    doubt = "the cluster is external: its logs may be incomplete, and other users share it"
    return doubt if evidence.topology.external else ""


def daemon_trouble(evidence: Evidence, *kinds: str) -> str:
    """Return a doubt if a daemon of these kinds died or was restarted during the run."""
    for daemon in evidence.daemons:
        name = str(daemon["name"])
        if name.startswith(kinds):
            if not daemon["alive"]:
                return f"{name} died during the run"
            if any(line.message.startswith("STARTUP_MSG:") for line in evidence.daemon_log(name)):
                return f"{name} was restarted during the run"
    return ""


def repeated_tasks(evidence: Evidence) -> str:
    """Return a doubt if Spark repeated a task: the task then reads and feeds its input again."""
    if evidence.driver.log.gone:
        return "an executor was lost, and Spark repeated its tasks"
    if any(not task.ok for task in evidence.event_log.tasks):
        return "a task failed, and Spark repeated it"
    return ""


def other_clocks(evidence: Evidence) -> str:
    """Return a doubt if logs of other hosts were aligned by wall clocks, with unknown error."""
    return "logs of other hosts were aligned by their wall clocks" if evidence.alignment.moved else ""
