"""Do independent sources agree? Each audit takes one quantity from two of them. Pure, over a bundle's evidence.

`base` is the contract, one file a subject. A failed audit makes a run invalid: its numbers contradict each other,
whoever is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlobd.attribution.audits import hdfs, recorder, samples, spark, yarn
from dlobd.attribution.audits.base import Audit, Rule
from dlobd.attribution.importers.evidence import Evidence

AUDITS: tuple[Rule, ...] = (*hdfs.RULES, *samples.RULES, *yarn.RULES, *spark.RULES, *recorder.RULES)


def audit(evidence: Evidence) -> list[Audit]:
    """All audits of one run, in a fixed order."""
    return [rule.decide(evidence) for rule in AUDITS]


def figures(one: Mapping[str, Any]) -> str:
    """An audit of run.json in one line: both figures, with their sources."""
    return f"{one['audit']}: {one['left']} ({one['left_source']}), {one['right']} ({one['right_source']})"
