"""Layer totals against controls: what a run with delays spent in a layer, less what a run without them did. Pure.

Looking up the interval of a delay says who was blamed for it while it lasted. What it does later, a heartbeat that is
missed or a second wait that becomes shorter, shows only in the totals. They are noisy, as whole runs are: a block's
difference is one value, and six blocks give an interval.

A control has all delays too, but each of no length: what the injector itself costs, and what it changes by waiting for
its moment, is then in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlobd.compare import median as medians
from dlobd.compare.median import Estimate
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import Attribution
from dlobd.selftest.points import POINTS
from dlobd.selftest.truth import Injection

UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """One run: what was injected into each layer, and what attribution gave to each, in nanoseconds."""

    way: str
    block: int
    injected: Mapping[str, int]
    found: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Total:
    """One layer of one way. `added_ns`: with delays less control, a block each; `injected_ns` in the same order, and
    also less that of the control, whose delays have no length."""

    way: str
    layer: str
    injected_ns: tuple[int, ...]
    added_ns: tuple[int, ...]

    @property
    def errors_ns(self) -> tuple[int, ...]:
        """What was added, less what was injected."""
        return tuple(added - injected for added, injected in zip(self.added_ns, self.injected_ns, strict=True))

    @property
    def error_ns(self) -> Estimate:
        """The median error, with its exact interval where there are blocks enough for one."""
        found = medians.median(self.errors_ns)
        assert found is not None
        return found

    @property
    def holds(self) -> bool | None:
        """Whether the interval holds no error; None without one."""
        return self.error_ns.holds(0)


def of_run(way: str, block: int, injected: Iterable[Injection], attribution: Attribution) -> RunTotals:
    """One run's totals; unexplained time is of no layer."""
    into: Counter[str] = Counter()
    for one in injected:
        point = POINTS[one.point]
        into[point.layer] += one.asked_ns if point.whole_run else one.ns
    found: Counter[str] = Counter()
    for segment in attribution.segments:
        found[UNEXPLAINED if segment.kind == "unexplained" else segment.layer] += segment.end_ns - segment.start_ns
    return RunTotals(way, block, dict(into), dict(found))


def compared(delayed: Sequence[RunTotals], controls: Sequence[RunTotals]) -> list[Total]:
    """Each layer of each way, over the blocks that have both runs; a layer that no run had is left out."""
    control = {(one.way, one.block): one for one in controls}
    pairs = [(one, control[one.way, one.block]) for one in delayed if (one.way, one.block) in control]
    rows = []
    for way in dict.fromkeys(one.way for one, _ in pairs):
        own = [pair for pair in pairs if pair[0].way == way]
        for layer in (*LAYERS, UNEXPLAINED, UNATTRIBUTED):
            if any(layer in run.found for pair in own for run in pair):
                injected = tuple(one.injected.get(layer, 0) - other.injected.get(layer, 0) for one, other in own)
                added = tuple(one.found.get(layer, 0) - other.found.get(layer, 0) for one, other in own)
                rows.append(Total(way, layer, injected, added))
    return rows
