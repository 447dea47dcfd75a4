"""Layer totals against paired controls: the time of a layer in a run with delays, minus its time in a control. Pure.

Later effects of a delay, such as a missed heartbeat, show only in the totals. Totals are noisy: the difference of a
block is one value, and six blocks give an interval. A control has the same delays with length 0, and so the same cost
of the injector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlobd.compare import median as medians
from dlobd.compare.median import Estimate
from dlobd.faults.injection_log import Injection
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import Attribution
from dlobd.selftest.injection_points import POINTS

UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Injected and attributed nanoseconds of each layer in one run."""

    way: str
    block: int
    injected: Mapping[str, int]
    attributed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Total:
    """A layer of a way. `added_ns` and `injected_ns`: run with delays minus control, one value per block."""

    way: str
    layer: str
    injected_ns: tuple[int, ...]
    added_ns: tuple[int, ...]

    @property
    def errors_ns(self) -> tuple[int, ...]:
        """Added minus injected time, per block."""
        return tuple(added - injected for added, injected in zip(self.added_ns, self.injected_ns, strict=True))

    @property
    def error_ns(self) -> Estimate:
        """The median error, with its exact interval if there are enough blocks."""
        error = medians.median(self.errors_ns)
        assert error is not None
        return error

    @property
    def holds(self) -> bool | None:
        """True if the interval contains 0; None without an interval."""
        return self.error_ns.holds(0)


def of_run(way: str, block: int, injected: Iterable[Injection], attribution: Attribution) -> RunTotals:
    """Return the totals of a run; unexplained time belongs to no layer."""
    into: Counter[str] = Counter()
    for injection in injected:
        point = POINTS[injection.point]
        into[point.layer] += injection.asked_ns if point.whole_run else injection.ns
    attributed: Counter[str] = Counter()
    for segment in attribution.segments:
        attributed[UNEXPLAINED if segment.kind == "unexplained" else segment.layer] += segment.end_ns - segment.start_ns
    return RunTotals(way, block, dict(into), dict(attributed))


def compared(delayed: Sequence[RunTotals], controls: Sequence[RunTotals]) -> list[Total]:
    """Return each layer of each way, over the blocks with both runs."""
    control = {(run.way, run.block): run for run in controls}
    pairs = [(run, control[run.way, run.block]) for run in delayed if (run.way, run.block) in control]
    rows = []
    for way in dict.fromkeys(run.way for run, _ in pairs):
        own = [pair for pair in pairs if pair[0].way == way]
        for layer in (*LAYERS, UNEXPLAINED, UNATTRIBUTED):
            if any(layer in run.attributed for pair in own for run in pair):
                injected = tuple(run.injected.get(layer, 0) - other.injected.get(layer, 0) for run, other in own)
                added = tuple(run.attributed.get(layer, 0) - other.attributed.get(layer, 0) for run, other in own)
                rows.append(Total(way, layer, injected, added))
    return rows
