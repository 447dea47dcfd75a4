"""A finding as run.json has it: one cause of overhead, its evidence, and the setting that would lower it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What took time, and what would lower it. `docs/findings.md` has a section of the finding's name.

    Attributes:
        finding: its name in the table of remedies.
        layer: whose time it is.
        says: one sentence with figures.
        ns: time of the wall that the cause has.
        saves_ns: the wall would be shorter by at most so much without it; what is waited for beside it is left out.
        lo_ns: the same, less the uncertainty of boundaries; above 0.
        above_noise: whether `lo_ns` is more than equal runs differ by; such findings come first.
        evidence: one line each: spans with their lengths, figures of other sources, audits.
        remedy: the setting, as it is written in an experiment or on spark-submit's line.
        unless: what would change the verdict.
    """

    finding: str
    layer: str
    says: str
    ns: int
    saves_ns: int
    lo_ns: int
    above_noise: bool
    evidence: tuple[str, ...]
    remedy: str
    unless: str
