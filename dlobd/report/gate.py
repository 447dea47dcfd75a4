"""Whether a series is slower than its baseline by more than it may be: what `dlobd check` says.

Only what is sure counts. The wall has grown, or a layer has, if the whole interval is beyond the limit; the wall has
not if the whole interval is within. A layer can fail the gate; only the wall can pass it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dlobd.attribution.comparison import Compared, Growth, growth
from dlobd.report.comparison import WALL, Comparison, Pair
from dlobd.report.comparison_view import sentence
from dlobd.report.summary import title

Outcome = Literal["pass", "regression", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Gate:
    """The outcome, and why.

    grown: point and layer, or wall, that are surely beyond the limit, the largest growth in seconds first.
    reasons: a line each, of what has grown, or of walls that are not decided.
    open: a line each, of layers that are not decided; they do not change the outcome.
    runs_needed: so many runs a side may decide it; None: it is decided, or nobody knows.
    """

    outcome: Outcome
    grown: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    open: tuple[str, ...]
    runs_needed: int | None = None


@dataclass(frozen=True, slots=True)
class _Judged:
    pair: Pair
    name: str
    one: Compared
    growth: Growth
    several: bool

    @property
    def line(self) -> str:
        """For people; the point is named where there are several."""
        return f"{self.pair.second}: {self._sentence}" if self.several else self._sentence

    @property
    def _sentence(self) -> str:
        return sentence(title(self.name), self.one)


def gate(found: Comparison) -> Gate:
    """The gate of a comparison, whose margin is the limit."""
    judged = list(_judged(found))
    still_open = tuple(each.line for each in judged if each.growth == "undecided" and each.name != WALL)
    if grown := [each for each in judged if each.growth == "grown"]:
        grown.sort(key=lambda each: -each.one.difference_ns)
        reasons = tuple(each.line + _mostly(each, grown) for each in grown)
        return Gate("regression", tuple((each.pair.second, each.name) for each in grown), reasons, still_open)
    if open_walls := [each for each in judged if each.growth == "undecided" and each.name == WALL]:
        needed = [each.one.runs_needed for each in open_walls]
        known = [runs for runs in needed if runs is not None]
        most = max(known) if len(known) == len(needed) else None
        return Gate("inconclusive", (), tuple(each.line for each in open_walls), still_open, most)
    return Gate("pass", (), (), still_open)


def _judged(found: Comparison) -> Iterator[_Judged]:
    for pair in found.pairs:
        for name, one in pair.quantities.items():
            least_ns = 0.0 if name == WALL else found.least_ns
            yield _Judged(pair, name, one, growth(one, found.margin, least_ns), len(found.pairs) > 1)


def _mostly(judged: _Judged, grown: list[_Judged]) -> str:
    """Of a wall whose growth is in no layer for sure: where most of it is."""
    if judged.name != WALL or any(each.pair is judged.pair and each.name != WALL for each in grown):
        return ""
    layers = judged.pair.layers
    if not layers:
        return ""
    most = max(layers, key=lambda layer: layers[layer].difference_ns)
    return f"; most of it is in {title(most)}, {layers[most].difference_ns / 1e9:+.3f} s, which is not sure"
