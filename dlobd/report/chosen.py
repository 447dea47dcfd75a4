"""Runs that a person names to be compared, by bundles and by files of series, and how they fall into groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlobd.bundle.store import find
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.run import series as scheduling
from dlobd.schema import Experiment

Repeat = tuple[str, int]
"""The key of the series that a run belongs to, and its repeat there."""

SILENT = ("name", "timeout_s", "accept_timeout_s")
"""Fields of an experiment that say nothing of what is run, or how."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Runs of dlobd's own training job that are ok, in the order of their start.

    axes: those of the sweeps among them.
    left_out: the runs that are not ok, a line each.
    repeats: run id to repeat, of those of a series.
    """

    runs: tuple[Run, ...]
    axes: tuple[str, ...]
    left_out: tuple[str, ...]
    repeats: Mapping[str, Repeat] = field(default_factory=dict)

    def label(self, run: Run, *but: str) -> str:
        """A run's label: what sets it apart of the axes, or without a sweep of all fields that differ.

        Args:
            but: fields that are not named.
        """
        return _label(run, self.axes or differing(self.runs), but)

    def by_repeat(self, alike: Iterable[Run]) -> dict[Repeat, Run]:
        """Runs of one setting by their repeat; those of no series are counted in their order.

        Raises:
            UsageError: a repeat has two of them.
        """
        found: dict[Repeat, Run] = {}
        for number, run in enumerate(alike, 1):
            repeat = self.repeats.get(run.run_id, ("", number))
            if repeat in found:
                ids = f"{found[repeat].run_id} and {run.run_id}"
                raise UsageError(f"Repeat {repeat[1]} has two runs that are alike: {ids}.", "give one series at a time")
            found[repeat] = run
        return found


def named(paths: Iterable[Path]) -> tuple[list[tuple[Repeat | None, Run]], tuple[str, ...]]:
    """The runs of series (files `series-KEY.json`) that have ended, and those of bundles (directories): each once, in
    the order of their start, with the repeat of those of a series; and the axes of the sweeps among them.

    Raises:
        UsageError: there is none, or one is of a user's own script.
        BundleError: a series or a bundle cannot be read.
    """
    found: dict[str, tuple[Repeat | None, Run]] = {}
    axes: dict[str, None] = {}
    for path in paths:
        if path.name.startswith("series-") and path.suffix == ".json":
            series = scheduling.load(path)
            axes |= dict.fromkeys(series.axes)
            ended = {cell: bundle.read() for cell, bundle in series.ended().items()}
            found |= {run.run_id: ((series.key, cell.repeat), run) for cell, run in ended.items()}
        else:
            run = find(path, Path(".")).read()
            found.setdefault(run.run_id, (None, run))
    if not found:
        raise UsageError("There is no run that has ended.", "name series files or bundles of runs")
    for _, run in found.values():
        if run.own:
            raise UsageError(
                f"Run {run.run_id} is of your own script: its training is not dlobd's to compare.", "omit it"
            )
    return sorted(found.values(), key=lambda one: (one[1].started_at, one[1].run_id)), tuple(axes)


def read(paths: Iterable[Path]) -> Chosen:
    """The runs of `named` that are ok. Raises UsageError, also if none is, and BundleError."""
    every, axes = named(paths)
    sound = tuple(run for _, run in every if run.status == "ok" and run.wall_ns)
    if not sound:
        raise UsageError("None of the runs has ended ok.", "name others")
    bad = tuple(f"left out: run {run.run_id} is {run.status}: {run.reason}" for _, run in every if run not in sound)
    return Chosen(sound, axes, bad, {run.run_id: repeat for repeat, run in every if repeat})


def configuration(run: Run) -> Experiment:
    """What was run, by dlobd's own training job."""
    assert isinstance(run.configuration, Experiment)
    return run.configuration


def differing(runs: Iterable[Run]) -> list[str]:
    """The fields of their experiments in which runs differ, in their order."""
    every = [configuration(run) for run in runs]
    return [
        name
        for name in Experiment.__dataclass_fields__
        if name not in SILENT and len({getattr(one, name) for one in every}) > 1
    ]


def setting(run: Run, others: Iterable[Run], *but: str) -> str:
    """A run's label among others: the fields in which these differ, but for some."""
    return _label(run, differing(others), but)


def grouped(runs: Iterable[Run], label: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Runs by their label, in the order of its first one."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(label(run), []).append(run)
    return groups


def _label(run: Run, fields: Iterable[str], but: Sequence[str]) -> str:
    return " ".join(f"{name}={getattr(run.configuration, name)}" for name in fields if name not in but)
