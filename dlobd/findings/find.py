"""Computes the findings of a run: applies every rule, bounds its saving by a replay, and compares it with noise."""

from __future__ import annotations

from dlobd.bundle import files, noise
from dlobd.findings.base import Context, Finder
from dlobd.findings.rules import RULES
from dlobd.findings.special import SPECIAL
from dlobd.record.run import Finding

FINDERS: dict[str, Finder] = {**{rule.finding: rule for rule in RULES}, **SPECIAL}
"""Rules by the code of their finding; docs/findings.md has a section about each."""

WORTH_NS = 1_000_000
"""Smallest saving that is reported."""


def findings(context: Context) -> list[Finding]:
    """Return findings above noise before others, and the largest saving first."""
    measured = context.evidence.document(files.NOISE)
    earlier_walls_ns = (measured.get("earlier_walls_ns") if measured else None) or ()
    noise_ns = noise.noise_ns(earlier_walls_ns, context.trace.wall_ns)
    rows = []
    for finder in FINDERS.values():
        if (found := finder(context)) is None:
            continue
        most_ns = min(found.saves_ns, context.trace.wall_ns)
        saves_ns = context.what_if.saved_ns(found.retain) if found.retain else most_ns
        lo_ns = saves_ns - found.uncertain_ns
        if saves_ns >= WORTH_NS and lo_ns > 0:
            names = ("finding", "layer", "says", "ns", "evidence", "remedy", "unless")
            shared = {name: getattr(found, name) for name in names}
            rows.append(Finding(**shared, saves_ns=saves_ns, lo_ns=lo_ns, above_noise=lo_ns > noise_ns))
    return sorted(rows, key=lambda row: (not row.above_noise, -row.saves_ns, row.finding))
