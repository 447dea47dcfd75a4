"""All checks of a run, in the order of the report."""

from dlobd.record.run import Check
from dlobd.trust import completeness, data_path, records, spark, training, yarn
from dlobd.trust.base import Facts, Rule

_MODULES = (completeness, training, data_path, yarn, spark, records)
RULES: tuple[Rule, ...] = tuple(rule for module in _MODULES for rule in module.RULES)


def checks(facts: Facts) -> list[Check]:
    """Return the checks that apply to a run. The first failed check is the reason of an invalid run."""
    return [check for rule in RULES if (check := rule.decide(facts)) is not None]
