"""Comparison of candidates with baselines: wall time and layers of each pair, and the settings that differ.

All wall times of a comparison form one family of tests, all layers a second family; see `dlobd.compare.verdicts`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

from dlobd.compare import compatibility, permutation
from dlobd.compare.compatibility import BUSY, Difference, why_unusable
from dlobd.compare.figures import PARTS, WALL, layer_or_zero_s, wall_s
from dlobd.compare.permutation import ALPHA, Samples
from dlobd.compare.runset import RunSet
from dlobd.compare.verdicts import LEAST, MARGIN, Compared, compare_family
from dlobd.errors import UsageError
from dlobd.layers import title
from dlobd.record.run import Run


@dataclass(frozen=True, slots=True)
class Pair:
    """A baseline and a candidate with their results.

    paired: True if both ran in each repeat of one series; equal positions of `runs` belong to one repeat.
    runs: IDs of the compared runs of the baseline and the candidate.
    left_out: one line per excluded run.
    unknown: layers that some of the runs did not measure.
    """

    baseline: str
    candidate: str
    differing: Mapping[str, tuple[object, object]]
    paired: bool
    runs: tuple[tuple[str, ...], tuple[str, ...]]
    left_out: tuple[str, ...]
    wall: Compared
    layers: Mapping[str, Compared]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        seconds = f"{self.wall.difference_ns / 1e9:+.3f} s"
        return f"{self.candidate} against {self.baseline}: wall time {self.wall.verdict}, {seconds}"

    @property
    def quantities(self) -> dict[str, Compared]:
        """Results for the wall time and the layers, by name."""
        return {WALL: self.wall, **self.layers}


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """All pairs, with their common properties.

    environment: allowed differences between the environments.
    common, machine, versions: equal settings and facts of all runs.
    margin: margin of equivalence, as a fraction of the baseline.
    least_ns: absolute margin of equivalence of a layer; see `verdicts.LEAST`.
    fewest_wall, fewest_layers: fewest runs of each side for a significant difference.
    """

    environment: tuple[Difference, ...]
    common: Mapping[str, object]
    machine: Mapping[str, object]
    versions: Mapping[str, object]
    margin: float
    least_ns: float
    fewest_wall: int
    fewest_layers: int
    pairs: tuple[Pair, ...]

    def __repr__(self) -> str:
        return f"<comparison of {'; '.join(map(str, self.pairs))}>"

    def _repr_html_(self) -> str:
        """Return the pairs and a table of their seconds, for notebooks."""
        import pandas as pd

        lines = "".join(f"<p>{escape(str(pair))}</p>" for pair in self.pairs)
        rows = [
            (pair.candidate, title(name), one.baseline_ns / 1e9, one.candidate_ns / 1e9, one.verdict)
            for pair in self.pairs
            for name, one in pair.quantities.items()
        ]
        table = pd.DataFrame(rows, columns=["candidate", "layer", "baseline, s", "candidate, s", "verdict"]).round(3)
        return lines + str(table.to_html(index=False, border=0))


@dataclass(frozen=True, slots=True)
class _Usable:
    baseline: RunSet
    candidate: RunSet
    paired: bool
    runs: tuple[tuple[Run, ...], tuple[Run, ...]]
    left_out: tuple[str, ...]

    def samples(self, value: Callable[[Run], float | None]) -> Samples | None:
        """Return the values of all runs, in nanoseconds; None if a run lacks a value. `value` returns seconds."""
        sides = [[round(seconds * 1e9) for run in runs if (seconds := value(run)) is not None] for runs in self.runs]
        if [*map(len, sides)] != [*map(len, self.runs)]:
            return None
        return Samples(tuple(sides[0]), tuple(sides[1]), self.paired)


def compare(
    pairs: Sequence[tuple[RunSet, RunSet]], margin: float = MARGIN, allowed: Collection[str] = ()
) -> Comparison:
    """Compare the candidate of each (baseline, candidate) pair with its baseline.

    `margin` is the margin of equivalence of the wall time, as a fraction of the baseline. `allowed` lists the
    `compatibility.KINDS` that may differ. Raises UsageError without usable runs, or if the environments differ.
    """
    if not pairs:
        raise UsageError("No pair of baseline and candidate has finished runs.", "run both sides first")
    usable = [_usable(baseline, candidate, allowed) for baseline, candidate in pairs]
    runs = [run for one in usable for side in one.runs for run in side]
    differences = compatibility.differences(runs)
    orders = (compatibility.order(*one.runs) for one in usable if not one.paired)
    differences += next(filter(None, orders), [])
    compatibility.refuse(differences, allowed)
    walls = compare_family({place: _wall(one) for place, one in enumerate(usable)}, margin)
    least_ns = LEAST * margin * min(wall.baseline_ns for wall in walls.values())
    measured: dict[tuple[int, str], Samples] = {}
    unknown: dict[int, list[str]] = {}
    for place, one in enumerate(usable):
        for layer in PARTS:
            samples = one.samples(partial(layer_or_zero_s, layer=layer))
            if samples is None:
                unknown.setdefault(place, []).append(layer)
            elif any(samples.baseline + samples.candidate):
                measured[place, layer] = samples
    layers = compare_family(measured, margin, least_ns)
    paired = all(one.paired for one in usable)
    return Comparison(
        environment=tuple(differences),
        common=common([one.settings for pair in pairs for one in pair]),
        machine=common([run.platform for run in runs]),
        versions=common([run.versions for run in runs]),
        margin=margin,
        least_ns=least_ns,
        fewest_wall=permutation.fewest(ALPHA / len(usable), paired),
        fewest_layers=permutation.fewest(ALPHA / max(1, len(measured)), paired),
        pairs=tuple(
            Pair(
                baseline=one.baseline.label,
                candidate=one.candidate.label,
                differing=compatibility.differing(one.baseline.settings, one.candidate.settings),
                paired=one.paired,
                runs=(_ids(one.runs[0]), _ids(one.runs[1])),
                left_out=one.left_out,
                wall=walls[place],
                layers={layer: compared for (where, layer), compared in layers.items() if where == place},
                unknown=tuple(unknown.get(place, ())),
            )
            for place, one in enumerate(usable)
        ),
    )


def common(every: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the entries with equal values in all mappings."""
    return {name: value for name, value in every[0].items() if all(one.get(name) == value for one in every)}


def _usable(baseline: RunSet, candidate: RunSet, allowed: Collection[str]) -> _Usable:
    """Select the usable runs. Paired sets use a repeat only if both of its runs are usable."""
    if (shared := set(_ids(baseline.runs))) and shared == set(_ids(candidate.runs)):
        same = f"the same run, {min(shared)}" if len(shared) == 1 else f"the same {len(shared)} runs"
        raise UsageError(f"Baseline and candidate have {same}: there is no difference to compare.", "name other runs")
    left_out, members = [], []
    for side in (baseline, candidate):
        kept, lines = side.usable(BUSY in allowed)
        left_out += [f"{side.label}: {line}" for line in lines]
        members.append(kept.members)
        if not kept.members:
            raise _none_usable(side, allowed)
    series = {member.repeat.series for side in (baseline, candidate) for member in side.members}
    paired = len(series) == 1 and "" not in series and baseline.label != candidate.label
    if paired:
        both = {member.repeat for member in members[0]} & {member.repeat for member in members[1]}
        for side, kept_members in zip((baseline, candidate), members, strict=True):
            left_out += [
                f"{side.label}: run {member.run.run_id}, because the other run of its repeat is not usable"
                for member in kept_members
                if member.repeat not in both
            ]
        kept_in_both = ([one for one in kept_members if one.repeat in both] for kept_members in members)
        members = [tuple(sorted(kept_members, key=lambda member: member.repeat)) for kept_members in kept_in_both]
        if not all(members):
            raise UsageError(f"No repeat has usable runs of both sides: {'; '.join(left_out)}.", "run it again")
    runs = [tuple(member.run for member in kept_members) for kept_members in members]
    return _Usable(baseline, candidate, paired, (runs[0], runs[1]), tuple(left_out))


def _none_usable(side: RunSet, allowed: Collection[str]) -> UsageError:
    """Return the error of a side without a usable run, with the number of runs for each reason."""
    reasons = Counter(why_unusable(member.run, member.busy_percent, BUSY in allowed) for member in side.members)
    counts = "; ".join(f"{count} of {len(side.members)} {reason}" for reason, count in reasons.items())
    what = f"{side.label}: no run can be compared: {counts}."
    ended_well = any(not why_unusable(member.run, member.busy_percent, keep_busy=True) for member in side.members)
    busy = f"run again on a quiet machine, or add --allow {BUSY}"
    return UsageError(what, busy if ended_well and BUSY not in allowed else "compare runs with status ok")


def _ids(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(run.run_id for run in runs)


def _wall(one: _Usable) -> Samples:
    walls = one.samples(wall_s)
    assert walls is not None  # usable runs have a wall time
    return walls
