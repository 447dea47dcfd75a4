"""The contract of an audit: one quantity from two sources, and how the two must compare.

An audit passes, fails, or is unknown: where a source is not there, where a way to run makes no such promise, or where a
difference has an innocent explanation in the evidence itself (a doubt). It never fails for what a run may do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.recorder import RecordedSpan
from dlobd.attribution.sources.logs import LIMITS
from dlobd.record.run import Audit

Verdict = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the evidence says. A figure is None where its source is absent.

    why: that no verdict is possible, whatever the figures are.
    doubt: why a difference would be no contradiction; empty if it is one.
    """

    left: int | None = None
    right: int | None = None
    why: str = ""
    doubt: str = ""


def worst(excess: Sequence[int], allowed: int, doubt: str = "") -> Figures:
    """The largest of several excesses against what is allowed; no figures where nothing was there to exceed."""
    return Figures(max(excess), allowed, doubt=doubt) if excess else Figures(doubt=doubt)


def outside_ns(span: RecordedSpan, at_ns: int) -> int:
    """How far an instant lies outside of a span; 0 inside."""
    return max(span.start_ns - at_ns, at_ns - span.end_ns, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two figures must compare."""

    words: str
    holds: Callable[[int, int], bool]


EQUAL = Comparison("equal", lambda left, right: left == right)
NOT_MORE = Comparison("not more", lambda left, right: left <= right)


@dataclass(frozen=True, slots=True)
class Rule:
    """One audit. `says` is one sentence for people; `whole`: only a job that ended well owes it."""

    audit: str
    says: str
    left_source: str
    right_source: str
    comparison: Comparison
    look: Callable[[Evidence], Figures]
    whole: bool = False

    def decide(self, evidence: Evidence) -> Audit:
        """The verdict on one run; evidence that cannot be read is no verdict, and others say that it is damaged."""
        try:
            found = self.look(evidence)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            found = Figures(why=f"its evidence cannot be read: {type(error).__name__}: {error}")
        why = found.why or (incomplete(evidence) if self.whole else "") or self._absent(found)
        verdict: Verdict = "unknown"
        if not why and found.left is not None and found.right is not None:
            if self.comparison.holds(found.left, found.right):
                verdict, why = "pass", self.comparison.words
            elif found.doubt:
                why = f"they differ, but that is not a contradiction: {found.doubt}"
            else:
                verdict, why = "fail", self.comparison.words
        return Audit(self.audit, verdict, found.left, self.left_source, found.right, self.right_source, why)

    def _absent(self, found: Figures) -> str:
        sides = ((found.left, self.left_source), (found.right, self.right_source))
        absent = " and ".join(source for value, source in sides if value is None)
        return f"not available: {absent}" if absent else ""


# ---- what several audits ask

SLOW_TIMER_NS = 100
"""Machines read their clock within 20 to 100 ns, virtual ones too; one that is emulated needs more than a microsecond.
"""


def training_job(evidence: Evidence) -> dict[str, Any]:
    """What dlobd's own training job was told; empty for the user's own script, about which nothing is known."""
    return {} if evidence.own else evidence.job


def incomplete(evidence: Evidence) -> str:
    """Why this run owes no sums over its whole job; empty if it does."""
    if evidence.window["exit_code"] != 0 or evidence.window["ended_by"]:
        return "the job did not end well"
    job = training_job(evidence)
    # in client mode YARN calls a job well that was not: what counts is what the ranks left
    if job.get("workers") and (absent := job["workers"] - len(evidence.results)) > 0:
        return f"{absent} of {job['workers']} ranks left no result"
    return ""


def cut_short(evidence: Evidence) -> str:
    """That training ended before its epochs did, and what that means for sums over its input; empty if it did not."""
    job = training_job(evidence)
    taken = [result["steps"] for result in evidence.results.values()]
    limited = any(job.get(limit) for limit in LIMITS)
    if not limited or not taken or min(taken) >= job["steps"]:
        return ""
    return "training ended before its epochs did: what was read or fed beyond its last step is not counted"


def passes(evidence: Evidence) -> int | None:
    """How often the job reads its input from storage: the barrier launcher feeds later epochs from its memory."""
    job = training_job(evidence)
    if not job:
        return None
    return 1 if job["input"] == "feed" and job["launcher"] == "barrier" else int(job["epochs"])


def foreign(evidence: Evidence) -> str:
    """That the cluster is external, and what that means for sums over its daemons' logs; empty if it is not."""
    return "the cluster is external: its logs may be incomplete, and it is shared" if evidence.external else ""


def disturbed(evidence: Evidence, *daemons: str) -> str:
    """Which of these kinds of daemons died or came back while the job ran; empty if none did."""
    for daemon in evidence.daemons:
        name = str(daemon["name"])
        if not name.startswith(daemons):
            continue
        if not daemon["alive"]:
            return f"{name} died during the run"
        if any(line.message.startswith("STARTUP_MSG:") for line in evidence.daemon_log(name)):
            return f"{name} was restarted during the run"
    return ""


def slowness(evidence: Evidence) -> int:
    """How many times more than usual a machine needs for what lies between two marks: 1, but where it is emulated."""
    timer_ns = (evidence.noise or {}).get("timer_ns")
    return max(1, int(timer_ns) // SLOW_TIMER_NS) if timer_ns else 1


def several_clocks(evidence: Evidence) -> str:
    """That evidence is of several clocks, however it was placed on one axis; empty if all of it is of one clock."""
    return other_clocks(evidence) or ("evidence of several clocks" if evidence.alignment.clocks else "")


def other_clocks(evidence: Evidence) -> str:
    """That evidence of other hosts was placed by their wall clocks; empty if all of it is of one clock."""
    _ = evidence.processes, evidence.yarn, evidence.driver_log  # reading them is what finds other clocks
    return "evidence from other hosts is aligned by their wall clocks" if evidence.alignment.moved else ""
