"""The findings of a run: every remedy is asked, its bound is computed by a replay, and what is noise is told apart."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd.attribution.findings.base import Case, Draft, Remedy
from dlobd.attribution.findings.rules import RULES
from dlobd.attribution.findings.special import SPECIAL
from dlobd.bundle import noise
from dlobd.record.run import Finding

REMEDIES: dict[str, Remedy] = {**{rule.finding: rule for rule in RULES}, **SPECIAL}
"""Name to remedy; each has a section in docs/findings.md."""

WORTH_NS = 1_000_000
"""What saves less than a millisecond is not told."""


def findings(case: Case) -> list[Finding]:
    """What would lower the overhead, what saves most first; those above noise before those that are not."""
    earlier_walls_ns = (case.evidence.noise or {}).get("earlier_walls_ns") or ()
    noise_ns = noise.noise_ns(earlier_walls_ns, case.trace.wall_ns)
    found = [_finding(draft, saves_ns, lo_ns, noise_ns) for draft, saves_ns, lo_ns in _bounded(case)]
    return sorted(found, key=lambda one: (not one.above_noise, -one.saves_ns, one.finding))


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
