"""The findings of a run: every remedy is asked, its bound is computed by a replay, and what is noise is told apart."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd.attribution.findings.base import Case, Draft, Remedy
from dlobd.attribution.findings.rules import RULES
from dlobd.attribution.findings.special import SPECIAL
from dlobd.bundle.finding import Finding
from dlobd.bundle.run import run_variation

REMEDIES: dict[str, Remedy] = {**{rule.finding: rule for rule in RULES}, **SPECIAL}
"""Name to remedy; each has a section in docs/findings.md."""

WORTH_NS = 1_000_000
"""What saves less than a millisecond is not told."""

DIFFERENCE = 2.77
"""Standard deviations by which two equal runs differ in 95 of 100 cases: 1.96 times the root of 2."""

UNKNOWN_NOISE = 0.10
"""Of the wall, where too few runs of the experiment are stored to say how much they differ: on the machines of
docs/bench.md single runs differ by 5 to 13 %."""


def findings(case: Case) -> list[Finding]:
    """What would lower the overhead, what saves most first; those above noise before those that are not."""
    noise_ns = noise(case)
    found = [_finding(draft, saves_ns, lo_ns, noise_ns) for draft, saves_ns, lo_ns in _bounded(case)]
    return sorted(found, key=lambda one: (not one.above_noise, -one.saves_ns, one.finding))


def noise(case: Case) -> int:
    """By how much two equal runs differ, in 95 of 100 cases; nanoseconds of the wall."""
    walls_ns = (case.evidence.noise or {}).get("earlier_walls_ns") or ()
    variation = run_variation(walls_ns)
    share = UNKNOWN_NOISE if variation is None else DIFFERENCE * variation
    return round(share * case.trace.wall_ns)


def _bounded(case: Case) -> Iterator[tuple[Draft, int, int]]:
    """Each draft with the most and the least that its remedy saves; none whose least is nothing."""
    for remedy in REMEDIES.values():
        if (draft := remedy(case)) is None:
            continue
        saves_ns = case.what_if.saved_ns(draft.kept) if draft.kept else min(draft.saves_ns, case.trace.wall_ns)
        lo_ns = saves_ns - draft.uncertain_ns
        if saves_ns >= WORTH_NS and lo_ns > 0:
            yield draft, saves_ns, lo_ns


def _finding(draft: Draft, saves_ns: int, lo_ns: int, noise_ns: int) -> Finding:
    return Finding(
        draft.finding, draft.layer, draft.says, draft.ns, saves_ns, lo_ns, lo_ns > noise_ns, draft.evidence,
        draft.remedy, draft.unless,
    )  # fmt: skip
