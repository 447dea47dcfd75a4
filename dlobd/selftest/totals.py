"""Layer totals against controls: what a run with delays spent in a layer, less what a run without them did. Pure.

Looking up the interval of a delay says who was blamed for it while it lasted. What it does later, a heartbeat that is
missed or a second wait that becomes shorter, shows only in the totals. They are noisy, as whole runs are: a block's
difference is one value, and six blocks give an interval.

The truth has an error of its own: the injector, which takes its time to stop a process or to look whether a delay is
due, may have held the job up for that long as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlobd.attribution import statistics
from dlobd.attribution.statistics import Estimate
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import Attribution
from dlobd.selftest.points import POINTS
from dlobd.selftest.truth import Injection

UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """One run: what was injected into each layer, what the injector may have added to it itself, and what attribution
    gave to each, in nanoseconds."""

    way: str
    block: int
    injected: Mapping[str, int]
    own: Mapping[str, int]
    found: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Total:
    """One layer of one way. `added_ns`: with delays less control, a block each; `injected_ns`, and `own_ns`, the
    injector's own time, in the same order."""

    way: str
    layer: str
    injected_ns: tuple[int, ...]
    own_ns: tuple[int, ...]
    added_ns: tuple[int, ...]

    @property
    def errors_ns(self) -> tuple[int, ...]:
        """What was added, less what was injected."""
        return tuple(added - injected for added, injected in zip(self.added_ns, self.injected_ns, strict=True))

    @property
    def error_ns(self) -> Estimate:
        """The median error, with its exact interval where there are blocks enough for one."""
        return _median(self.errors_ns)

    @property
    def holds(self) -> bool | None:
        """Whether the interval holds no error, with or without the injector's own time; None without an interval."""
        without = _median([error - own for error, own in zip(self.errors_ns, self.own_ns, strict=True)])
        high = self.error_ns.high
        return None if without.low is None or high is None else without.low <= 0 <= high


def _median(values: Sequence[int]) -> Estimate:
    found = statistics.median(values)
    assert found is not None
    return found


def of_run(way: str, block: int, injected: Iterable[Injection], attribution: Attribution) -> RunTotals:
    """One run's totals; unexplained time is of no layer."""
    into: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for one in injected:
        point = POINTS[one.point]
        into[point.layer] += one.asked_ns if point.whole_run else one.ns
        own[point.layer] += one.own_ns
    found: Counter[str] = Counter()
    for segment in attribution.segments:
        found[UNEXPLAINED if segment.kind == "unexplained" else segment.layer] += segment.end_ns - segment.start_ns
    return RunTotals(way, block, dict(into), dict(own), dict(found))


def compared(delayed: Sequence[RunTotals], controls: Sequence[RunTotals]) -> list[Total]:
    """Each layer of each way, over the blocks that have both runs; a layer that no run had is left out."""
    control = {(one.way, one.block): one for one in controls}
    pairs = [(one, control[one.way, one.block]) for one in delayed if (one.way, one.block) in control]
    rows = []
    for way in dict.fromkeys(one.way for one, _ in pairs):
        own = [pair for pair in pairs if pair[0].way == way]
        for layer in (*LAYERS, UNEXPLAINED, UNATTRIBUTED):
            if any(layer in run.found for pair in own for run in pair):
                injected = tuple(one.injected.get(layer, 0) for one, _ in own)
                besides = tuple(one.own.get(layer, 0) for one, _ in own)
                added = tuple(one.found.get(layer, 0) - other.found.get(layer, 0) for one, other in own)
                rows.append(Total(way, layer, injected, besides, added))
    return rows
