"""All checks of a run, in the order in which a reader would ask for them."""

from __future__ import annotations

from dlobd.record.run import Check
from dlobd.trust import clocks, completeness, feed, hdfs, messages, recorder, spark, training, yarn
from dlobd.trust.base import Facts, Rule

RULES: tuple[Rule, ...] = (
    *completeness.RULES,
    *training.RULES,
    *feed.RULES,
    *hdfs.RULES,
    *yarn.RULES,
    *spark.RULES,
    *recorder.RULES,
    *clocks.RULES,
    *messages.RULES,
)


def checks(facts: Facts) -> list[Check]:
    """Return the checks that apply to a run. The first one that fails is the reason why the run is invalid."""
    return [check for rule in RULES if (check := rule.decide(facts)) is not None]
