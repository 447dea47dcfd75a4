"""The figures of a comparison of sides: for each pair its wall and its layers, what was set alike and what was not.

All walls of a comparison are one family, and all layers another: of each, false alarms stay below
`dlobd.attribution.comparison.ALPHA`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlobd.attribution import permutation
from dlobd.attribution.comparison import ALPHA, LEAST, Compared, compare
from dlobd.attribution.permutation import Sides
from dlobd.errors import UsageError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report import environment
from dlobd.report.environment import Difference
from dlobd.report.sides import Member, Side
from dlobd.report.summary import layer_s, wall_s

PARTS = (*LAYERS, UNATTRIBUTED)

WALL = "wall"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides and what came out. In `blocks`: both were run in each repeat of one series.

    runs: the ids of those that count, of either side; in blocks, equal places are of one repeat.
    left_out: a line each.
    unknown: layers that some of the runs do not tell of.
    """

    first: str
    second: str
    differing: Mapping[str, tuple[Any, Any]]
    blocks: bool
    runs: tuple[tuple[str, ...], tuple[str, ...]]
    left_out: tuple[str, ...]
    wall: Compared
    layers: Mapping[str, Compared]
    unknown: tuple[str, ...]

    @property
    def quantities(self) -> dict[str, Compared]:
        """The wall and the layers."""
        return {WALL: self.wall, **self.layers}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs, and what they have in common.

    environment: differences that were allowed.
    machine, versions: of the runs, without what differs.
    margin: a share of the first side.
    least_ns: a layer's difference of less does not matter; see `dlobd.attribution.comparison.LEAST`.
    fewest_wall, fewest_layers: runs a side that are needed for any difference to be significant.
    """

    environment: tuple[Difference, ...]
    common: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    margin: float
    least_ns: float
    fewest_wall: int
    fewest_layers: int
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class _Matched:
    """Runs that count, of two sides."""

    first: Side
    second: Side
    blocks: bool
    runs: tuple[tuple[Run, ...], tuple[Run, ...]]
    left_out: tuple[str, ...]


def comparison(sides: Sequence[tuple[Side, Side]], margin: float, allowed: Collection[str] = ()) -> Comparison:
    """Compares each pair's second side with its first.

    Args:
        allowed: kinds of `environment.KINDS`: differences between environments that do not refuse, and `busy`, which
            keeps runs of a busy machine.

    Raises:
        UsageError: there is no pair, a side has no run that counts, or the environments differ.
    """
    if not sides:
        raise UsageError("There are no two sides with runs that have ended.", "run both first")
    matched = [_matched(first, second, allowed) for first, second in sides]
    every = [run for one in matched for runs in one.runs for run in runs]
    differences = environment.differences(every)
    if not all(one.blocks for one in matched):
        differences += next(filter(None, (environment.order(*one.runs) for one in matched if not one.blocks)), [])
    environment.checked(differences, allowed)
    walls = compare({place: _sides(one, wall_s) for place, one in enumerate(matched)}, margin)
    least_ns = LEAST * margin * min(wall.first_ns for wall in walls.values())
    known: dict[tuple[int, str], Sides] = {}
    unknown: dict[int, list[str]] = {}
    for place, one in enumerate(matched):
        for layer in PARTS:
            values = [[_layer_s(run, layer) for run in runs] for runs in one.runs]
            if any(None in each for each in values):
                unknown.setdefault(place, []).append(layer)
            elif any(map(any, values)):
                known[place, layer] = _sides(one, lambda run, layer=layer: _layer_s(run, layer))
    layers = compare(known, margin, least_ns)
    blocks = all(one.blocks for one in matched)
    settings = [side.settings for pair in sides for side in pair]
    return Comparison(
        tuple(differences),
        common(settings),
        common([run.platform for run in every]),
        common([run.versions for run in every]),
        margin,
        least_ns,
        permutation.fewest(ALPHA / len(matched), blocks),
        permutation.fewest(ALPHA / max(1, len(known)), blocks),
        tuple(
            Pair(
                one.first.label,
                one.second.label,
                differing(one.first.settings, one.second.settings),
                one.blocks,
                (_ids(one.runs[0]), _ids(one.runs[1])),
                one.left_out,
                walls[place],
                {layer: found for (where, layer), found in layers.items() if where == place},
                tuple(unknown.get(place, ())),
            )
            for place, one in enumerate(matched)
        ),
    )


def document(found: Comparison) -> dict[str, Any]:
    """As JSON has it."""
    return dataclasses.asdict(found)


def _matched(first: Side, second: Side, allowed: Collection[str]) -> _Matched:
    """The runs of two sides that count. In blocks both of a repeat count, or none."""
    left_out, sound = [], []
    for side in (first, second):
        why = {member.run.run_id: environment.unsound(member, allowed) for member in side.members}
        left_out += [f"{side.label}: run {run_id} {words}" for run_id, words in why.items() if words]
        sound.append([member for member in side.members if not why[member.run.run_id]])
    blocks = _in_blocks(first, second)
    if blocks:
        repeats = [{member.repeat for member in members} for members in sound]
        both = repeats[0] & repeats[1]
        for side, members in zip((first, second), sound, strict=True):
            left_out += [
                f"{side.label}: run {member.run.run_id}, as the other one of its repeat does not count"
                for member in members
                if member.repeat not in both
            ]
        sound = [_by_repeat(members, both) for members in sound]
    for side, members in zip((first, second), sound, strict=True):
        if not members:
            raise UsageError(
                f"{side.label} has no run that counts: {'; '.join(left_out)}.",
                f"run more, or add --allow {environment.BUSY} if the machine was only busy",
            )
    runs = tuple(tuple(member.run for member in members) for members in sound)
    return _Matched(first, second, blocks, (runs[0], runs[1]), tuple(left_out))


def _in_blocks(first: Side, second: Side) -> bool:
    """Whether both sides are points of the same series."""
    keys = {member.repeat[0] if member.repeat else None for side in (first, second) for member in side.members}
    return len(keys) == 1 and None not in keys and first.label != second.label


def _by_repeat(members: Sequence[Member], repeats: Collection[Any]) -> list[Member]:
    return sorted((member for member in members if member.repeat in repeats), key=lambda member: member.repeat or ())


def _ids(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(run.run_id for run in runs)


def _layer_s(run: Run, layer: str) -> float | None:
    """Seconds of a layer; 0 where there was none, as Spark in a native run; None where it was not measured."""
    took_no_part = {row.layer for row in run.not_measured if row.took_no_part}
    return 0.0 if layer in took_no_part else layer_s(run, layer)


def _sides(one: _Matched, value: Any) -> Sides:
    first, second = (tuple(round(value(run) * 1e9) for run in runs) for runs in one.runs)
    return Sides(first, second, one.blocks)


def common(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all have alike."""
    return {name: value for name, value in every[0].items() if all(each.get(name) == value for each in every)}


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What two have not alike."""
    names = dict.fromkeys((*first, *second))
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}
