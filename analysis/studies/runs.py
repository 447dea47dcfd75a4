"""Runs of a study: labels, repeats, and check for equal work."""

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
"""Launcher without Spark, YARN and HDFS."""

_STACK = """scheduler launcher input deploy_mode channel exchange replication block_size_mb
executor_memory_mb executor_overhead_mb executor_cores min_accuracy"""
STACK = frozenset(_STACK.split())
"""Fields of an experiment that configure the stack."""

MAY_DIFFER = STACK | {*LABELS, "page_cache"}
"""Fields of an experiment that define the work and must be equal: all fields outside of the stack."""


def load(paths: Iterable[Path]) -> RunSet:
    """Read the runs of several series and bundles in the order of their start, without duplicates.

    Raises UsageError if no run is finished, or a run is of a user's own script; BundleError if a bundle cannot be read.
    """
    sets = [runset.read(str(path), Path(".")) for path in paths]
    axes = tuple(dict.fromkeys(axis for one in sets for axis in one.axes))
    # a bundle that is also part of a series keeps the repeat of the series
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
    """Return the experiment of a run of dlobd's own training."""
    assert isinstance(run.configuration, Experiment)
    return run.configuration


def varying(runs: Iterable[Run]) -> list[str]:
    """Return the settings that differ between runs, in the order of the experiment's fields."""
    every = [experiment(run) for run in runs]
    names = [name for name in Experiment.__dataclass_fields__ if name not in LABELS]
    return [name for name in names if len({getattr(one, name) for one in every}) > 1]


def settings_name(runs: RunSet, run: Run, *omitted: str) -> str:
    """Label a run by the axes of the sweep; without a sweep, by all varying settings."""
    fields = runs.axes or varying(runs.runs)
    return " ".join(f"{field}={getattr(run.configuration, field)}" for field in fields if field not in omitted)


def by_repeat(runs: RunSet) -> dict[Repeat, Run]:
    """Index the runs by repeat. Raises UsageError if a repeat has two runs."""
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
    """Format launcher and input; only the launcher for native, which has one input."""
    return NATIVE if chosen.launcher == NATIVE else f"{chosen.launcher} {chosen.input}"


def check_same_work(runs: Sequence[Run], also: Collection[str] = ()) -> None:
    """Check that all runs did equal work, and that runs of one launcher and input have equal stack settings.

    Fields in `also` may differ. Raises UsageError with the differing fields and both values.
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
            f"Runs {one.run_id} and {other.run_id} {reason}: {differ}.",
            "compare runs with equal values of these settings",
        )
