"""Ways to run a job: what a choice of launcher or scheduler needs elsewhere, and who said what. Pure.

What the user set is never changed; other settings are implied where there is only one choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlobd.errors import UsageError


@dataclass(frozen=True, slots=True)
class Rule:
    """With `field` = `value` nothing else than `needs` works."""

    field: str
    value: str
    needs: Mapping[str, str]
    why: str


RULES = (
    Rule(
        "launcher",
        "native",
        {"scheduler": "none", "deploy_mode": "client", "input": "read"},
        "it starts plain processes on this machine, without Spark",
    ),
    Rule(
        "scheduler",
        "none",
        {"launcher": "native", "deploy_mode": "client", "input": "read"},
        "every other launcher starts trainers on Spark's executors",
    ),
    Rule("launcher", "distributor", {"input": "read"}, "spark-tensorflow-distributor has no feed"),
    Rule("scheduler", "standalone", {"deploy_mode": "client"}, "Spark's standalone Master runs no Python driver"),
    Rule("scheduler", "local-cluster", {"deploy_mode": "client"}, "it lives in the driver's own JVM"),
)

# TensorFlow is imported in every Python worker too, and YARN counts a fork's memory again
SUITS: dict[str, dict[str, int]] = {"tfos-stock": {"executor_overhead_mb": 2560}}
"""What a launcher wants otherwise than the shipped experiments say; another value may work as well."""


def implied(values: Mapping[str, Any], said: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What follows from what was said: the values that change, and a line for each choice that changes some.

    Args:
        values: of an experiment or own job, checked one by one.
        said: key to where the user wrote it, such as `--set launcher=native`; all others are defaults.

    Raises:
        UsageError: what was said contradicts itself; one line says all that has to change.
    """
    changed: dict[str, Any] = {}
    lines = []
    for rule in RULES:
        now = {**values, **changed}
        if now.get(rule.field) != rule.value or (rule.field not in said and rule.field not in changed):
            continue
        lacking = {name: value for name, value in rule.needs.items() if name in now and now[name] != value}
        if against := [name for name in lacking if name in said]:
            raise _contradiction(rule, lacking, {name: (said[name], now[name]) for name in against})
        changed |= lacking
        lines += _lines(rule.field, rule.value, lacking)
    if "launcher" in said:
        wanted = SUITS.get(values["launcher"], {})
        suits = {name: value for name, value in wanted.items() if name in values and name not in said}
        changed |= suits
        lines += _lines("launcher", values["launcher"], suits)
    return changed, lines


def _lines(field: str, value: str, brought: Mapping[str, Any]) -> list[str]:
    return [f"implied by {field}={value}: {', '.join(_settings(brought))}"] if brought else []


def _contradiction(rule: Rule, lacking: Mapping[str, str], against: Mapping[str, tuple[str, Any]]) -> UsageError:
    """`against`: what was said otherwise, where and how."""
    options = [where for where, _ in against.values() if where.startswith("--")]
    given = [f"{_and(options)} {'was' if len(options) == 1 else 'were'} given"] if options else []
    given += [f"{where} has {name}={value}" for name, (where, value) in against.items() if where not in options]
    remedy = " ".join(f"--set {setting}" for setting in _settings({name: lacking[name] for name in against}))
    return UsageError(
        f"{rule.field} {rule.value} needs {_and(_settings(lacking))}, but {_and(given)}: {rule.why}.",
        f"{remedy}, or another {rule.field}",
    )


def _settings(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
