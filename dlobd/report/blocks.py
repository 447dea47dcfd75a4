"""Runs to be compared, from series files and from bundles, each with the repeat it belongs to.

Only runs that did the same work compare: of their configurations all must be equal that says what was done, and may
differ what says by which way (`WAY`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report.chosen import Repeat, named
from dlobd.report.repeats import left_out
from dlobd.run.provenance import MACHINE
from dlobd.schema import Experiment

NATIVE = "native"
"""The launcher without a stack."""

WAY = frozenset(
    {
        "name", "scheduler", "launcher", "input", "deploy_mode", "channel", "exchange", "replication", "block_size_mb",
        "executor_memory_mb", "executor_overhead_mb", "executor_cores", "timeout_s", "accept_timeout_s", "page_cache",
        "min_accuracy",
    }
)  # fmt: skip
"""Fields of an experiment that say how it goes through the stack and when it is given up, not what is computed."""

DISTURBED = 0.1
"""Of the CPU time that the machine wanted in a run's window: a run that lost more of it to other virtual machines says
more of them than of the job."""

CACHED_APART = 0.1
"""Shares of the training files in memory that lie further apart are different states of the page cache."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A run of dlobd's own training job, and its repeat; the key of the series is empty for one that is of none."""

    repeat: Repeat
    run: Run

    @property
    def experiment(self) -> Experiment:
        """What was run."""
        assert isinstance(self.run.configuration, Experiment)
        return self.run.configuration

    @property
    def label(self) -> str:
        """Launcher and input; the native launcher has no choice of input."""
        return label(self.experiment)


def label(experiment: Experiment) -> str:
    """Launcher and input; the native launcher has no choice of input."""
    return NATIVE if experiment.launcher == NATIVE else f"{experiment.launcher} {experiment.input}"


def taken(paths: Sequence[Path]) -> list[Taken]:
    """The runs of series files (`series-KEY.json`) and of single bundles, in the order of their start.

    Bundles that come without their series are paired by order: the n-th of each experiment belongs to repeat n.

    Raises:
        UsageError: there is none, or one of the user's own script.
        BundleError: a series or a bundle cannot be read.
    """
    numbers: Counter[str] = Counter()
    every = []
    for repeat, run in named(paths)[0]:
        if repeat is None:
            numbers[run.experiment_key] += 1
        every.append(Taken(repeat or ("", numbers[run.experiment_key]), run))
    return every


def sound(every: Sequence[Taken], keep_disturbed: bool = False) -> list[Taken]:
    """Those that are ok, and not disturbed unless such are wanted too."""
    ok = (one for one in every if one.run.status == "ok" and one.run.wall_ns)
    return [one for one in ok if keep_disturbed or not disturbed(one.run)]


def disturbed(run: Run) -> bool:
    """Whether something that is none of the run's took its cores: other processes of the machine, or other virtual
    machines; False where nobody looked."""
    return run.busy or _stolen(run)


def _stolen(run: Run) -> bool:
    """Whether the hypervisor gave more than `DISTURBED` of the CPU time to others; False where nobody counted it."""
    if run.resources is None or not run.resources.hosts:
        return False
    host = run.resources.hosts[0]
    return host.cpu_stolen_ns > DISTURBED * (host.cpu_busy_ns + host.cpu_stolen_ns)


def check_equal(every: Sequence[Taken], but: Collection[str] = ()) -> None:
    """Refuses runs that did not do the same work, and two of one label that went different ways.

    Args:
        but: fields that may differ.

    Raises:
        UsageError: with the fields that differ, and both values.
    """
    first: dict[str, Taken] = {}
    for one in every:
        _refuse(every[0], one, WAY | set(but), "did not do the same work")
        # the stack's state before a run is no way of its own: `warnings` names it
        same = first.setdefault(one.label, one)
        _refuse(same, one, {"name", "page_cache", *but}, f"are both {one.label}, but not alike")


def _refuse(one: Taken, other: Taken, but: Collection[str], what: str) -> None:
    left, right = (dataclasses.asdict(each.experiment) for each in (one, other))
    differ = [f"{name} ({left[name]}, {right[name]})" for name in left if name not in but and left[name] != right[name]]
    if differ:
        ids = f"Runs {one.run.run_id} and {other.run.run_id}"
        raise UsageError(f"{ids} {what}: they differ in {', '.join(differ)}.", "compare runs that agree in these")


def warnings(every: Sequence[Taken], keep_disturbed: bool = False) -> list[str]:
    """What makes a comparison of these runs doubtful, one line each; empty if nothing does."""
    runs = [one.run for one in every]
    lines = []
    if bad := [f"{run.run_id} is {run.status} ({run.reason})" for run in runs if run.status != "ok"]:
        lines.append(f"Left out: {left_out(runs)}: {'; '.join(bad)}.")
    took = f"from which other virtual machines took more than {DISTURBED:.0%} of the CPU time"
    for words, why in ((took, _stolen), ("which processes of others held up", lambda run: run.busy)):
        if lost := [run.run_id for run in runs if run.status == "ok" and why(run)]:
            what = "Kept, as you asked" if keep_disturbed else "Left out"
            lines.append(f"{what}: {len(lost)} of {len(runs)} runs, {words}: {', '.join(lost)}.")
    platforms = {name: {str(run.platform.get(name)) for run in runs} for name in MACHINE}
    lines += _differing("machines", platforms)
    names = sorted({name for run in runs for name in run.versions})
    # a native run has no Java to report
    versions = {name: {str(run.versions[name]) for run in runs if run.versions.get(name)} for name in names}
    lines += _differing("versions", versions)
    lines += _differing(
        "states of dlobd's code", {"commit": {(run.git.commit or "") if run.git else "" for run in runs}}
    )
    lines += _differing("page cache states", {"page_cache": {one.experiment.page_cache for one in every}})
    kept = [
        run.page_cache.resident_bytes / run.page_cache.total_bytes
        for run in runs
        if run.page_cache and run.page_cache.total_bytes
    ]
    if kept and max(kept) - min(kept) > CACHED_APART:
        words = f"{min(kept):.0%} to {max(kept):.0%} of their training files were in memory"
        lines.append(f"The runs began with different page cache states: {words}.")
    if environment := environment_apart(runs):
        lines.append(f"The runs began with different page cache states: {environment}.")
    if any(one.repeat[0] == "" for one in every):
        lines.append("Some runs are of no series: they are paired by the order of their start.")
    if not interleaved(every):
        lines.append("The runs are not interleaved: what drifted while they were made looks like a difference.")
    return lines


def environment_apart(runs: Iterable[Run]) -> str:
    """How much of their environment runs found in memory, if that is not alike; else empty."""
    kept = [share for run in runs if run.environment_cache and (share := run.environment_cache.share) is not None]
    if not kept or max(kept) - min(kept) <= CACHED_APART:
        return ""
    return f"{min(kept):.0%} to {max(kept):.0%} of what they needed of their environment was in memory"


def interleaved(every: Iterable[Taken]) -> bool:
    """Whether each repeat ended before the next one of its series began."""
    begins: dict[Repeat, list[str]] = {}
    for one in every:
        begins.setdefault(one.repeat, []).append(one.run.started_at)
    each = sorted(begins.items())
    return all(
        max(earlier) <= min(later)
        for ((source, _), earlier), ((next_source, _), later) in itertools.pairwise(each)
        if source == next_source
    )


def _differing(what: str, found: dict[str, set[Any]]) -> list[str]:
    several = [f"{name} {' and '.join(sorted(values))}" for name, values in found.items() if len(values) > 1]
    return [f"The runs are from different {what}: {'; '.join(several)}."] if several else []
