"""Settings that a launcher or scheduler implies. Pure.

dlobd never changes a setting that the user set. Other settings are implied if only one value is possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dlobd.errors import UsageError
from dlobd.experiment.settings import Value, listed


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `field` = `value` works only with the settings `needs`."""

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
    Rule("scheduler", "local-cluster", {"deploy_mode": "client"}, "it runs in the driver's JVM"),
)

# every Python worker imports TensorFlow too, and YARN counts the memory of a fork again
PREFERRED: dict[str, dict[str, int]] = {"tfos-stock": {"executor_overhead_mb": 2560}}
"""Defaults of a launcher, which replace the values of the built-in experiments. Other values may work as well."""


def implied(values: Mapping[str, Value], given: Mapping[str, str]) -> tuple[dict[str, Value], list[str]]:
    """Return the implied values, and a note for each setting that implies other values.

    `given` has the source of each key that the user set, such as `--set launcher=native`. Raises UsageError with all
    required changes if the user's settings contradict each other.
    """
    changed: dict[str, Value] = {}
    lines = []
    for rule in RULES:
        now = {**values, **changed}
        if now.get(rule.field) != rule.value or (rule.field not in given and rule.field not in changed):
            continue
        lacking = {name: value for name, value in rule.needs.items() if name in now and now[name] != value}
        if against := [name for name in lacking if name in given]:
            raise _contradiction(rule, lacking, {name: (given[name], now[name]) for name in against})
        changed |= lacking
        lines += _lines(rule.field, rule.value, lacking)
    if "launcher" in given:
        wanted = PREFERRED.get(str(values["launcher"]), {})
        preferred = {name: value for name, value in wanted.items() if name in values and name not in given}
        changed |= preferred
        lines += _lines("launcher", str(values["launcher"]), preferred)
    return changed, lines


def _lines(field: str, value: str, implied_: Mapping[str, Value]) -> list[str]:
    return [f"implied by {field}={value}: {', '.join(_settings(implied_))}"] if implied_ else []


def _contradiction(rule: Rule, lacking: Mapping[str, str], against: Mapping[str, tuple[str, Value]]) -> UsageError:
    """Return a UsageError for settings that contradict a rule. `against`: contradictory key -> source and value."""
    options = [where for where, _ in against.values() if where.startswith("--")]
    places = [f"{listed(options)} {'was' if len(options) == 1 else 'were'} given"] if options else []
    places += [f"{where} has {name}={value}" for name, (where, value) in against.items() if where not in options]
    remedy = " ".join(f"--set {setting}" for setting in _settings({name: lacking[name] for name in against}))
    return UsageError(
        f"{rule.field} {rule.value} needs {listed(_settings(lacking))}, but {listed(places)}: {rule.why}.",
        f"{remedy}, or another {rule.field}",
    )


def _settings(values: Mapping[str, Value]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]
