"""Whether runs were made in the same environment, as a comparison needs: what differs, and which were disturbed.

A comparison is of what was set. What was not, and differs, would be mistaken for its effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report.blocks import CACHED_APART, DISTURBED, disturbed, environment_apart
from dlobd.report.sides import Member, settings
from dlobd.run.provenance import MACHINE

BUSY = "busy"
"""The kind of runs on a machine that did something else as well."""

ORDER = "order"
"""The kind of sides of which one was run after the other."""

BUSY_PERCENT = 25.0
"""Cores busier than this before a run: something else ran on the machine."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something of the environment that is not the same in all runs; `kind` is what `--allow` takes."""

    kind: str
    detail: str

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.kind}: {self.detail}"


def differences(runs: Sequence[Run]) -> list[Difference]:
    """What differs between the environments of runs, one of each kind at most."""
    found = []
    for kind, facts in _KINDS.items():
        values: dict[str, dict[str, None]] = {}
        for run in runs:
            for name, value in facts(run).items():
                values.setdefault(name, {})[str(value)] = None
        several = [f"{name} {' and '.join(each)}" for name, each in values.items() if len(each) > 1]
        if several:
            found.append(Difference(kind, "; ".join(several)))
    return found + _page_cache(runs)


def order(first: Sequence[Run], second: Sequence[Run]) -> list[Difference]:
    """Whether two sides that share no repeats were run one after the other: in the order of their start they change
    sides less than half as often as the smaller one has runs. In a random order that is about as often as it has."""
    if min(len(first), len(second)) < 2:
        return []
    starts = sorted((run.started_at, run.run_id, side) for side, runs in enumerate((first, second)) for run in runs)
    changes = sum(one[2] != other[2] for one, other in itertools.pairwise(starts))
    if changes > 1 and changes >= min(len(first), len(second)) / 2:
        return []
    words = "the sides were run one after the other, so that a drift of the machine looks like a difference"
    return [Difference(ORDER, words)]


def checked(found: Sequence[Difference], allowed: Collection[str]) -> None:
    """Refuses differences that are not allowed.

    Raises:
        UsageError: there is one.
    """
    if refused := [one for one in found if one.kind not in allowed]:
        allow = " ".join(f"--allow {one.kind}" for one in refused)
        raise UsageError(
            f"The runs are of different environments: {'. '.join(one.line for one in refused)}.",
            f"compare runs of one environment, or add {allow}",
        )


def unsound(member: Member, allowed: Collection[str]) -> str:
    """Why a run does not count in a comparison; empty if it does."""
    run = member.run
    if run.status != "ok" or not run.wall_ns:
        return f"is {run.status}: {run.reason}"
    if BUSY in allowed:
        return ""
    if run.busy:
        return "was held up by processes that are none of its own"
    if disturbed(run):
        return f"lost more than {DISTURBED:.0%} of the CPU time to other virtual machines"
    if member.busy_percent is not None and member.busy_percent > BUSY_PERCENT:
        return f"began while {member.busy_percent:.0f} % of the cores were busy"
    return ""


def _machine(run: Run) -> dict[str, Any]:
    return {name: run.platform.get(name) for name in MACHINE}


def _versions(run: Run) -> dict[str, Any]:
    # what took no part, as Java in a native run, has none
    return {name: version for name, version in run.versions.items() if version}


def _code(run: Run) -> dict[str, Any]:
    return {"commit": f"{(run.git.commit or '-')[:12]}{' with changes' * bool(run.git.dirty)}"} if run.git else {}


def _recording(run: Run) -> dict[str, Any]:
    return {"recording": run.overhead.recording} if run.overhead else {}


_KINDS: Mapping[str, Callable[[Run], dict[str, Any]]] = {
    "machine": _machine,
    "versions": _versions,
    "code": _code,
    "recording": _recording,
}

KINDS = (*_KINDS, "page-cache", ORDER, BUSY)
"""What `--allow` takes."""


def _page_cache(runs: Sequence[Run]) -> list[Difference]:
    """The training files' state in memory where the same one was asked for; another one that was asked for is a
    setting, and may be what is compared."""
    kept: dict[str, list[float]] = {}
    for run in runs:
        if run.page_cache and run.page_cache.total_bytes:
            share = run.page_cache.resident_bytes / run.page_cache.total_bytes
            kept.setdefault(str(settings(run).get("page_cache")), []).append(share)
    apart = [each for each in kept.values() if max(each) - min(each) > CACHED_APART]
    words = [f"{min(each):.0%} to {max(each):.0%} of the training files were in memory" for each in apart]
    if environment := environment_apart(runs):
        words.append(environment)
    return [Difference("page-cache", "; ".join(words))] if words else []
