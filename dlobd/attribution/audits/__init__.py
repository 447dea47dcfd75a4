"""Do independent sources agree? Each audit takes one quantity from two of them. Pure, over a bundle's evidence.

`base` is the contract, one file a subject. A failed audit makes a run invalid: its numbers contradict each other,
whichever is right.
"""

from __future__ import annotations

from dlobd.attribution.audits import (
    calls,
    clocks,
    hdfs,
    kernel,
    lives,
    messages,
    noted,
    own_marks,
    recorder,
    samples,
    spark,
    training,
    yarn,
)
from dlobd.attribution.audits.base import Rule
from dlobd.attribution.importers.evidence import Evidence
from dlobd.record.run import Audit

AUDITS: tuple[Rule, ...] = (
    *hdfs.RULES, *samples.RULES, *yarn.RULES, *spark.RULES, *recorder.RULES,
    *clocks.RULES, *lives.RULES, *messages.RULES, *calls.RULES, *own_marks.RULES, *training.RULES, *noted.RULES,
    *kernel.RULES,
)  # fmt: skip


def audit(evidence: Evidence) -> list[Audit]:
    """All audits of one run, in a fixed order."""
    return [rule.decide(evidence) for rule in AUDITS]
