"""Makes mutations and judges them: does a headline change, and is it noticed?

A forger edits the evidence, has the report computed anew from it, and seals the bundle again: the hashes hold, and the
report follows from the evidence. What is left to notice it by is what the evidence tells twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlobd.attribution import record
from dlobd.attribution.audits import audit
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.verification import verify
from dlobd.bundle.store import Bundle
from dlobd.errors import DlobdError
from dlobd.experiment import own_job
from dlobd.experiment.files import key
from tests.mutations.mutation import Mutation

DATA = Path(__file__).parents[1] / "data"

SHARE, NS = 0.01, 50_000_000
"""A time changes a headline if it changes by more than one of these: a share of the wall, or nanoseconds."""

TIMES = ("ns", "measured_ns", "between_marks_ns", "named_wait_ns", "unexplained_ns")
FIGURES = (
    "reason", "versions", "platform", "setup", "noise", "page_cache", "overhead", "git", "seeds", "configuration",
    "command", "started_at", "run_id", "epochs", "time_to_accuracy", "spark_metrics", "transport",
)  # fmt: skip
"""Members of run.json that are headlines as they are."""

MISSING = "missing: "
"""How a report's warning of a source begins that is not there."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of a mutation.

    headlines: what of the report changed that a reader would quote; empty if nothing did.
    noticed: by what: audits and other questions of `dlobd verify` that fail, and what the report says itself, which a
        forger did not want: that the run is invalid, or that a source is missing. Empty if by nothing.
    """

    mutation: Mutation
    headlines: tuple[str, ...]
    noticed: tuple[str, ...]

    @property
    def counts(self) -> bool:
        """Whether it is one to be noticed: a headline changed, and something in the bundle still says otherwise."""
        return bool(self.headlines and self.mutation.contradicts)


def copied(name: str, into: Path) -> Bundle:
    """A copy of a capture whose report is by this version."""
    bundle = Bundle(Path(shutil.copytree(DATA / name, into / "20260102T030405Z-0a1b")))
    sealed_again(bundle)
    return bundle


def sealed_again(bundle: Bundle) -> None:
    """Computes the report anew from the evidence, and the hashes.

    Raises:
        DlobdError: the evidence is so damaged that there is no report.
    """
    run = bundle.read_json()
    experiment = own_job.from_dict(run["configuration"])
    run["experiment_key"] = key(experiment)
    bundle.write(run | record.computed(bundle, experiment).to_json())
    bundle.seal()


def judged(mutation: Mutation, into: Path) -> Judgement:
    """Makes a mutation in an empty directory, seals it as a forger would, and looks whether that is noticed."""
    bundle = copied(mutation.bundle, into)
    before = bundle.read_json()
    mutation.apply(bundle.path)
    try:
        sealed_again(bundle)
    except (DlobdError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Judgement(mutation, ("there is no report any more",), (f"it cannot be computed: {error}",))
    after = bundle.read_json()
    return Judgement(mutation, tuple(_changed(before, after)), tuple(noticed(bundle, before, after)))


def noticed(bundle: Bundle, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """By what a change from one report to the other is noticed, the report being computed from the evidence."""
    contradicted = [one.audit for one in audit(Evidence(bundle.path)) if one.verdict == "fail"]
    yield from contradicted
    yield from (answer.question for answer in verify(bundle) if answer.ok is False)
    if any(line.startswith(MISSING) for line in set(after["warnings"]) - set(before["warnings"])):
        yield "a source is missing"
    elif before["status"] == "ok" and after["status"] == "invalid" and not contradicted:
        yield f"the report: {after['reason'].partition(':')[0]}"


def _changed(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    wall_ns = before["wall_ns"]

    def differs(one: int | None, other: int | None) -> bool:
        if one is None or other is None:
            return one != other
        return abs(one - other) > min(SHARE * wall_ns, NS)

    if differs(wall_ns, after["wall_ns"]):
        yield "wall"
    layers = [{layer["layer"]: layer for layer in run["layers"]} for run in (before, after)]
    for name in sorted(layers[0].keys() | layers[1].keys()):
        for time in TIMES:
            if differs(*(each.get(name, {}).get(time, 0) for each in layers)):
                yield f"{name} {time}"
    if differs(before["unattributed_ns"], after["unattributed_ns"]):
        yield "unattributed"
    for name in ("startup", "teardown"):
        at = [{event["event"]: event["at_ns"] for event in run[name]} for run in (before, after)]
        if any(differs(*(each.get(event) for each in at)) for event in at[0].keys() | at[1].keys()):
            yield name
    if differs(*((run["first_touch"] or {}).get("at_ns") for run in (before, after))):
        yield "first_touch"
    if [_used(row) for row in before["hdfs"]] != [_used(row) for row in after["hdfs"]]:
        yield "hdfs"
    said = before["status"] == after["status"]  # else it is invalid, and `noticed` has the reason
    yield from (name for name in FIGURES if before.get(name) != after.get(name) and (said or name != "reason"))
    for name in sorted(before["metrics"].keys() | after["metrics"].keys()):
        one, other = before["metrics"].get(name), after["metrics"].get(name)
        if name.endswith("_ns"):
            if differs(one, other):
                yield f"metrics {name}"
        elif isinstance(one, float) and isinstance(other, float):
            if abs(one - other) > SHARE * abs(one):
                yield f"metrics {name}"
        elif one != other:
            yield f"metrics {name}"


def _used(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of what HDFS was used for, without its times."""
    return tuple(value for name, value in sorted(row.items()) if not name.endswith("_ns"))
