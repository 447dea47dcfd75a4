"""Sets of runs: resolution of names of series, directories and bundles to runs.

runs/series-KEY.json           all runs of a series or sweep
runs/series-KEY.json:POINT     the runs of one point
runs/EXPERIMENT                a directory of bundles of one experiment
RUN                            a bundle, by path or ID
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from dlobd.bundle import store
from dlobd.compare.compatibility import differing, settings, why_unusable
from dlobd.errors import UsageError
from dlobd.experiment import series as scheduling
from dlobd.record.run import Run

K = TypeVar("K")


class Repeat(NamedTuple):
    """Key of a series, and number of the repeat; the key is empty for runs without a series."""

    series: str
    number: int


@dataclass(frozen=True, slots=True)
class Member:
    """Run of a set. `point`: label in its series or directory. `busy_percent`: load of the cores before the run."""

    run: Run
    repeat: Repeat
    point: str = ""
    busy_percent: float | None = None


@dataclass(frozen=True, slots=True)
class RunSet:
    """Runs of any status, with their name in reports; `axes` are the axes of the included sweeps."""

    label: str
    members: tuple[Member, ...]
    axes: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(member.run for member in self.members)

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the first run."""
        return settings(self.members[0].run)

    def points(self) -> "dict[str, RunSet]":
        """Split the set by point label."""
        return self._split(lambda member: member.point)

    def grouped(self, key: Callable[[Run], K]) -> "dict[K, RunSet]":
        """Split the set by a property of the runs; groups are ordered by their first run."""
        return self._split(lambda member: key(member.run))

    def usable(self, keep_busy: bool = False) -> "tuple[RunSet, tuple[str, ...]]":
        """Return the usable runs, and one line per unusable run; see `compatibility.why_unusable`."""
        why = [(member, why_unusable(member.run, member.busy_percent, keep_busy)) for member in self.members]
        left_out = tuple(f"run {member.run.run_id} {reason}" for member, reason in why if reason)
        usable = tuple(member for member, reason in why if not reason)
        return dataclasses.replace(self, members=usable), left_out

    def _split(self, key: Callable[[Member], K]) -> "dict[K, RunSet]":
        groups: dict[K, list[Member]] = {}
        for member in self.members:
            groups.setdefault(key(member), []).append(member)
        return {name: RunSet(str(name), tuple(members), self.axes) for name, members in groups.items()}


def without_series(label: str, runs: Iterable[Run]) -> RunSet:
    """Build a set from runs without a series; the n-th run of each experiment belongs to repeat n."""
    numbers: Counter[str] = Counter()
    members = []
    for run in runs:
        numbers[run.experiment_key] += 1
        members.append(Member(run, Repeat("", numbers[run.experiment_key]), label))
    return RunSet(label, tuple(members))


def of_series(series: scheduling.Series, ended: Mapping[scheduling.Cell, store.Bundle] | None = None) -> RunSet:
    """Read the finished runs of a series in the order of its points. `ended`: those to read, if they are known; finding
    them reads each run. Raises BundleError if a bundle cannot be read."""
    busy = {begun.run_id: begun.busy_percent for begun in series.begun}
    places = {label: place for place, label in enumerate(series.points)}
    every = series.ended() if ended is None else ended
    members = tuple(
        Member(bundle.read(), Repeat(series.key, cell.repeat), cell.point, busy[bundle.run_id])
        for cell, bundle in sorted(every.items(), key=lambda item: (places[item[0].point], item[0].repeat))
    )
    return RunSet(str(series.path), members, series.axes)


def read(name: str, out: Path) -> RunSet:
    """Resolve a name to runs, as described in the module; run IDs are searched in `out`. Raises UsageError if no run is
    finished, or if a directory has runs of several experiments; BundleError if a bundle cannot be read."""
    if found := series_runs(name):
        return of_series(*found)
    path = Path(name)
    if path.is_dir() and not (path / "run.json").exists():
        runs = (entry for entry in path.iterdir() if store.RUN_ID.fullmatch(entry.name))
        here = [store.Bundle(entry.resolve()) for entry in runs if (entry / "run.json").exists()]
        if inside := here or store.bundles(path):
            return _of_directory(path, inside)
    run = store.find(name, out).read()
    return without_series(f"{run.experiment} {run.run_id}", [run])


def series_runs(name: str) -> tuple[scheduling.Series, dict[scheduling.Cell, store.Bundle]] | None:
    """Read the series of `series-KEY.json`, or of `series-KEY.json:POINT`, with its finished runs of this point; return
    None for another name. Raises UsageError if no run is finished, BundleError if the file cannot be read."""
    file, _, point = name.partition(".json:")
    path = Path(f"{file}.json" if point else name)
    if not (path.name.startswith("series-") and path.suffix == ".json"):
        return None
    series = scheduling.load(path)
    if point and point not in series.points:
        raise UsageError(f"{path} has no point {point!r}.", f"choose one: {', '.join(series.points)}")
    ended = {cell: bundle for cell, bundle in sorted(series.ended().items()) if point in ("", cell.point)}
    if not ended:
        raise UsageError(f"{path} has no finished run.", "run it first")
    return series, ended


def pairs(first: str, second: str | None, out: Path) -> list[tuple[RunSet, RunSet]]:
    """Resolve two names to (baseline, candidate) pairs; run IDs are searched in `out`.

    Points with equal labels are a pair. Without `second`, the first point of a series is the baseline of all others.
    Raises UsageError if the names do not form a pair, BundleError if a bundle cannot be read.
    """
    baselines = read(first, out).points()
    if second is None:
        baseline, *others = baselines.values()
        if not others:
            raise UsageError(f"{first} has a single point.", "name the candidate as well")
        return [(baseline, other) for other in others]
    candidates = read(second, out).points()
    if len(baselines) == len(candidates) == 1:
        return [(next(iter(baselines.values())), next(iter(candidates.values())))]
    if both := [label for label in baselines if label in candidates]:
        return [(baselines[label], candidates[label]) for label in both]
    several = first if len(baselines) > 1 else second
    raise UsageError(f"{several} has several points, but {first} and {second} share none.", f"use '{several}:POINT'")


def _of_directory(path: Path, inside: Sequence[store.Bundle]) -> RunSet:
    runs = sorted((bundle.read() for bundle in inside), key=lambda run: (run.started_at, run.run_id))
    for other in runs[1:]:
        if names := differing(settings(runs[0]), settings(other)):
            raise UsageError(
                f"{path} has runs of several experiments: {runs[0].run_id} and {other.run_id} differ in "
                f"{', '.join(names)}.",
                "name a directory with runs of one experiment",
            )
    return without_series(str(path), runs)
