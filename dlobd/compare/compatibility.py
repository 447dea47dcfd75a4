"""Compatibility of runs: differences between environments, and unusable runs.

A comparison shows the effect of a setting. A second difference, in the environment, would be mistaken for that effect.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.run.provenance import MACHINE

LABELS = ("name", "timeout_s", "accept_timeout_s")
"""Fields of an experiment without effect on results: names and timeouts."""

BUSY_PERCENT = 25.0
"""Load of the cores in percent before a run above which the machine counts as busy."""

STOLEN_SHARE = 0.1
"""Fraction of the CPU time lost to other virtual machines above which a run is unusable."""

CACHE_APART = 0.1
"""Difference of cached fractions above which page cache states count as different."""

BUSY = "busy"
"""Kind of difference: the machine also ran other work."""

ORDER = "order"
"""Kind of difference: baseline and candidate ran one after the other."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between environments; `kind` is a value of `--allow`."""

    kind: str
    detail: str

    @property
    def line(self) -> str:
        return f"{self.kind}: {self.detail}"


def settings(run: Run) -> dict[str, object]:
    """Return a configuration without names and timeouts."""
    return {name: value for name, value in dataclasses.asdict(run.configuration).items() if name not in LABELS}


def differing(baseline: Mapping[str, object], candidate: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Return the differing entries with both values."""
    names = dict.fromkeys((*baseline, *candidate))
    both = {name: (baseline.get(name), candidate.get(name)) for name in names}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def differences(runs: Sequence[Run]) -> list[Difference]:
    """Return the differences between the environments of runs, at most one of each kind."""
    found = []
    for kind, facts in _FACTS.items():
        values: dict[str, dict[str, None]] = {}
        for run in runs:
            for name, value in facts(run).items():
                values.setdefault(name, {})[str(value)] = None
        several = [f"{name} {' and '.join(distinct)}" for name, distinct in values.items() if len(distinct) > 1]
        if several:
            found.append(Difference(kind, "; ".join(several)))
    return found + _page_cache(runs)


def order(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[Difference]:
    """Detect a baseline and a candidate that ran one after the other. Threshold: in order of start, the number of
    changes of side is less than half the runs of the smaller side. Random order gives about twice the threshold."""
    if min(len(baseline), len(candidate)) < 2:
        return []
    sides = enumerate((baseline, candidate))
    starts = sorted((run.started_at, run.run_id, side) for side, runs in sides for run in runs)
    changes = sum(one[2] != other[2] for one, other in itertools.pairwise(starts))
    if changes > 1 and changes >= min(len(baseline), len(candidate)) / 2:
        return []
    return [Difference(ORDER, "one side ran after the other, so a drift of the machine looks like a difference")]


def refuse(found: Sequence[Difference], allowed: Collection[str]) -> None:
    """Raise UsageError for differences that are not allowed."""
    if refused := [difference for difference in found if difference.kind not in allowed]:
        allow = " ".join(f"--allow {difference.kind}" for difference in refused)
        raise UsageError(
            f"The runs are from different environments: {'. '.join(difference.line for difference in refused)}.",
            f"compare runs of one environment, or add {allow}",
        )


def why_unusable(run: Run, busy_percent: float | None, keep_busy: bool = False) -> str:
    """Return the reason why a run is unusable for comparisons, or "" if it is usable. `busy_percent`: load of the cores
    before the run. `keep_busy`: accept runs that other processes disturbed."""
    if run.status != "ok" or not run.wall_ns:
        return f"is {run.status}: {run.reason}" if run.reason else f"is {run.status}"
    if keep_busy:
        return ""
    if run.busy:
        return "was delayed by other processes"
    host = run.resources.hosts[0] if run.resources and run.resources.hosts else None
    if host and host.cpu_stolen_ns > STOLEN_SHARE * (host.cpu_busy_ns + host.cpu_stolen_ns):
        return f"lost more than {100 * STOLEN_SHARE:.0f} % of the CPU time to other virtual machines"
    if busy_percent is not None and busy_percent > BUSY_PERCENT:
        return f"began while {busy_percent:.0f} % of the cores were busy"
    return ""


def _code(run: Run) -> dict[str, object]:
    return {"commit": f"{(run.git.commit or '-')[:12]}{' with changes' * bool(run.git.dirty)}"} if run.git else {}


_FACTS: Mapping[str, Callable[[Run], dict[str, object]]] = {
    "machine": lambda run: {name: run.platform.get(name) for name in MACHINE},
    # a component without a role in the run, such as Java in a native run, has no version
    "versions": lambda run: {name: version for name, version in run.versions.items() if version},
    "code": _code,
    "recording": lambda run: {"recording": run.overhead.recording} if run.overhead else {},
}

KINDS = (*_FACTS, "page-cache", ORDER, BUSY)
"""Valid values of `--allow`."""


def _page_cache(runs: Sequence[Run]) -> list[Difference]:
    """Compare the cached fractions of environments, and of training files among runs with equal requested cache state.
    The requested state is a setting, so it may differ between the sides."""
    cached: dict[str, list[float]] = {}
    for run in runs:
        if run.page_cache and run.page_cache.total_bytes:
            share = run.page_cache.resident_bytes / run.page_cache.total_bytes
            cached.setdefault(str(settings(run).get("page_cache")), []).append(share)
    details = [f"{_range(shares)} of the training files were in memory" for shares in cached.values() if _apart(shares)]
    environment = [
        run.environment_cache.share for run in runs if run.environment_cache and run.environment_cache.share is not None
    ]
    if _apart(environment):
        details.append(f"{_range(environment)} of the needed files of the environment were in memory")
    return [Difference("page-cache", "; ".join(details))] if details else []


def _apart(shares: Sequence[float]) -> bool:
    return bool(shares) and max(shares) - min(shares) > CACHE_APART


def _range(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"
