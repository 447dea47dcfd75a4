"""What `dlobd compare` and `dlobd check` are told to compare: sides, each some runs of one experiment.

runs/series-KEY.json           each point of a series or sweep is a side
runs/series-KEY.json:POINT     one of its points
runs/EXPERIMENT                a directory of bundles, all of one experiment
RUN                            a bundle, by its path or id
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlobd.bundle import store
from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report.chosen import SILENT, Repeat
from dlobd.run import series as scheduling


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a side, and its repeat, if it is of a series; `busy_percent` of the machine's cores before it, if
    known."""

    run: Run
    repeat: Repeat | None = None
    busy_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Runs of one experiment, in the order of their start, however they ended."""

    label: str
    members: tuple[Member, ...]

    @property
    def settings(self) -> Mapping[str, Any]:
        """What was run, without what says nothing of it."""
        return settings(self.members[0].run)


def settings(run: Run) -> dict[str, Any]:
    """The fields of what was run, but for its name and its deadlines."""
    return {name: value for name, value in dataclasses.asdict(run.configuration).items() if name not in SILENT}


def pairs(first: str, second: str | None, out: Path) -> list[tuple[Side, Side]]:
    """The sides to be compared, each pair's first one being what the second is compared with.

    Args:
        first, second: each names sides; see the module. Of two with several, those of equal label are a pair. Without
            `second` the first point of a series is what its others are compared with.
        out: where run ids are looked for.

    Raises:
        UsageError: they do not make a pair.
        BundleError: a series or a bundle cannot be read.
    """
    sides = read(first, out)
    if second is None:
        baseline, *others = sides.values()
        if not others:
            raise UsageError(f"{first} has a single point.", "name what it is to be compared with")
        return [(baseline, other) for other in others]
    others_by_label = read(second, out)
    if len(sides) == len(others_by_label) == 1:
        return [(next(iter(sides.values())), next(iter(others_by_label.values())))]
    if both := [label for label in sides if label in others_by_label]:
        return [(sides[label], others_by_label[label]) for label in both]
    several = first if len(sides) > 1 else second
    raise UsageError(f"{several} has several points, and none is in both.", f"choose one: '{several}:POINT'")


def read(named: str, out: Path) -> dict[str, Side]:
    """Label to side of what is named; see the module.

    Raises:
        UsageError: there is no run, or a directory has those of several experiments.
        BundleError: a series or a bundle cannot be read.
    """
    file, _, point = named.partition(".json:")
    path = Path(f"{file}.json" if point else named)
    if path.name.startswith("series-") and path.suffix == ".json":
        return _of_series(path, point)
    if path.is_dir() and not (path / "run.json").exists() and (inside := _bundles(path)):
        return _of_directory(path, inside)
    member = Member(store.find(named, out).read())
    label = f"{member.run.experiment} {member.run.run_id}"
    return {label: Side(label, (member,))}


def of_series(series: scheduling.Series, repeats: int | None = None) -> dict[str, Side]:
    """Label to side of the points that have a run which has ended, in the series' order.

    Args:
        repeats: only these many; None: all.

    Raises:
        BundleError: a bundle cannot be read.
    """
    busy = series.busy()
    members: dict[str, list[Member]] = {label: [] for label in series.points}
    for cell, bundle in sorted(series.ended().items()):
        if repeats is None or cell.repeat <= repeats:
            member = Member(bundle.read(), (series.key, cell.repeat), busy[bundle.run_id])
            members[cell.point].append(member)
    return {label: Side(label, tuple(found)) for label, found in members.items() if found}


def _of_series(path: Path, point: str) -> dict[str, Side]:
    series = scheduling.load(path)
    if point and point not in series.points:
        raise UsageError(f"{path} has no point {point!r}.", f"choose one: {', '.join(series.points)}")
    found = {label: side for label, side in of_series(series).items() if point in ("", label)}
    if not found:
        raise UsageError(f"{path} has no run that has ended.", "run it first")
    return found


def _of_directory(path: Path, inside: list[store.Bundle]) -> dict[str, Side]:
    runs = sorted((bundle.read() for bundle in inside), key=lambda run: (run.started_at, run.run_id))
    other = next((run for run in runs if settings(run) != settings(runs[0])), None)
    if other is not None:
        ids = f"{runs[0].run_id} and {other.run_id}"
        raise UsageError(f"{path} has runs of several experiments, such as {ids}.", "name a directory of one of them")
    return {str(path): Side(str(path), tuple(map(Member, runs)))}


def _bundles(path: Path) -> list[store.Bundle]:
    """Those in a directory, or in the directories of it."""
    here = [each for each in path.iterdir() if store.RUN_ID.fullmatch(each.name) and (each / "run.json").exists()]
    return [store.Bundle(each.resolve()) for each in here] or store.bundles(path)
