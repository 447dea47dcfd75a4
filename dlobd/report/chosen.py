"""Runs that a person names to be compared, by bundles and by files of series, and how they fall into groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlobd.bundle.run import Run
from dlobd.bundle.store import find
from dlobd.errors import UsageError
from dlobd.run import series as scheduling
from dlobd.schema import Experiment

SILENT = ("name", "timeout_s", "accept_timeout_s")
"""Fields of an experiment that say nothing of what is run, or how."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Runs of dlobd's own training job that are ok, in the order of their start.

    axes: those of the sweeps among them.
    left_out: the runs that are not ok, a line each.
    """

    runs: tuple[Run, ...]
    axes: tuple[str, ...]
    left_out: tuple[str, ...]

    def label(self, run: Run, *but: str) -> str:
        """A run's label: what sets it apart of the axes, or without a sweep of all fields that differ.

        Args:
            but: fields that are not named.
        """
        return _label(run, self.axes or differing(self.runs), but)


def read(paths: Sequence[str]) -> Chosen:
    """The runs of bundles (directories) and of series (their files `series-KEY.json`); each once.

    Raises:
        BundleError: a bundle or a series cannot be read.
        UsageError: no run is ok, or one is of a user's own script.
    """
    found: dict[str, Run] = {}
    axes: dict[str, None] = {}
    for path in map(Path, paths):
        if path.name.startswith("series-") and path.suffix == ".json":
            series = scheduling.load(path)
            axes |= dict.fromkeys(series.axes)
            bundles = list(series.ended().values())
        else:
            bundles = [find(path, Path("."))]
        found |= {bundle.run_id: bundle.read() for bundle in bundles}
    runs = sorted(found.values(), key=lambda run: run.run_id)
    for run in runs:
        if run.own:
            raise UsageError(
                f"Run {run.run_id} is of your own script, which has none of the settings compared.", "omit it"
            )
    sound = tuple(run for run in runs if run.status == "ok" and run.wall_ns)
    if not sound:
        raise UsageError("None of the runs has ended ok.", "name bundles, or series-KEY.json of a series")
    bad = tuple(f"left out: run {run.run_id} is {run.status}: {run.reason}" for run in runs if run not in sound)
    return Chosen(sound, tuple(axes), bad)


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
