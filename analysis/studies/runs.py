"""Runs of a study: their names, their repeats, and the work that they did."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from dlobd.compare import runset
from dlobd.compare.compatibility import LABELS
from dlobd.compare.runset import Repeat, RunSet
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.schema import Experiment

NATIVE = "native"
"""The launcher without a stack."""

_STACK = """scheduler launcher input deploy_mode channel exchange replication block_size_mb
executor_memory_mb executor_overhead_mb executor_cores min_accuracy"""
STACK = frozenset(_STACK.split())
"""Fields of an experiment that select the components of the stack."""

MAY_DIFFER = STACK | {*LABELS, "page_cache"}
"""All other fields define the work, and must be equal."""


def load(paths: Iterable[Path]) -> RunSet:
    """Return the runs of several series and bundles in the order of their start, each run once.

    Raises UsageError if no run has ended, or a run is of a user's own script; BundleError if one cannot be read.
    """
    sets = [runset.read(str(path), Path(".")) for path in paths]
    axes = tuple(dict.fromkeys(axis for one in sets for axis in one.axes))
    # a bundle that is also in a series keeps its repeat there
    every = sorted((member for one in sets for member in one.members), key=lambda member: bool(member.repeat.series))
    by_id = {member.run.run_id: member for member in every}
    members = sorted(by_id.values(), key=lambda member: (member.run.started_at, member.run.run_id))
    for member in members:
        if member.run.own:
            raise UsageError(
                f"Run {member.run.run_id} is of your own script; studies compare trainings by dlobd.", "omit it"
            )
    numbered = iter(runset.without_series("", [member.run for member in members if not member.repeat.series]).members)
    return RunSet("", tuple(member if member.repeat.series else next(numbered) for member in members), axes)


def experiment(run: Run) -> Experiment:
    """Return the experiment of a training by dlobd."""
    assert isinstance(run.configuration, Experiment)
    return run.configuration


def varying(runs: Iterable[Run]) -> list[str]:
    """Return the settings in which trainings by dlobd differ, in the order of the experiment's fields."""
    every = [experiment(run) for run in runs]
    names = [name for name in Experiment.__dataclass_fields__ if name not in LABELS]
    return [name for name in names if len({getattr(one, name) for one in every}) > 1]


def settings_name(runs: RunSet, run: Run, *omitted: str) -> str:
    """Name a run by the axes of the sweep, or by all varying settings without a sweep."""
    fields = runs.axes or varying(runs.runs)
    return " ".join(f"{field}={getattr(run.configuration, field)}" for field in fields if field not in omitted)


def by_repeat(runs: RunSet) -> dict[Repeat, Run]:
    """Return the runs by repeat. Raises UsageError if a repeat has two runs."""
    found: dict[Repeat, Run] = {}
    for member in runs.members:
        if member.repeat in found:
            ids = f"{found[member.repeat].run_id} and {member.run.run_id}"
            raise UsageError(
                f"Repeat {member.repeat.number} has two runs with equal settings: {ids}.", "give one series at a time"
            )
        found[member.repeat] = member.run
    return found


def launch_label(chosen: Experiment) -> str:
    """Return launcher and input; the native launcher has no choice of input."""
    return NATIVE if chosen.launcher == NATIVE else f"{chosen.launcher} {chosen.input}"


def check_same_work(runs: Sequence[Run], also: Collection[str] = ()) -> None:
    """Refuse runs that did different work, and runs of one launcher and input with different stack settings.

    Fields in `also` may differ, too. Raises UsageError with the fields that differ, and both values.
    """
    by_label: dict[str, Run] = {}
    for run in runs:
        _refuse(runs[0], run, MAY_DIFFER.union(also), "did different work")
        label = launch_label(experiment(run))
        same = by_label.setdefault(label, run)
        _refuse(same, run, (MAY_DIFFER - STACK).union(also), f"are both {label} with different settings")


def _refuse(one: Run, other: Run, ignored: Collection[str], reason: str) -> None:
    left, right = (dataclasses.asdict(run.configuration) for run in (one, other))
    names = [name for name in left if name not in ignored and left[name] != right[name]]
    if names:
        differ = ", ".join(f"{name} ({left[name]}, {right[name]})" for name in names)
        raise UsageError(
            f"Runs {one.run_id} and {other.run_id} {reason}: {differ}.", "compare runs that agree in these"
        )
