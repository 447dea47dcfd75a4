"""Checks of the evidence as a whole: it is complete, its spans fit together, and the requested transport was used."""

from dlobd.measures.transport import disagreements
from dlobd.trust.base import Compared, Facts, Rules

RULES = Rules()

INCONSISTENT_SHARE = 0.01
"""Largest fraction of the wall time in which spans may contradict each other."""


@RULES.add("evidence-complete", "bundle: missing or incomplete sources", "limit")
def _complete(facts: Facts) -> Compared:
    """Check that every source on which the breakdown depends is complete. Fails in the real runs of
    tests/full/ways/test_missing_evidence.py: a silenced log, a full disk, a truncated file."""
    needed = [absence for absence in facts.absences if absence.kind.decides]
    message = needed[0].sentence if needed else "every source of the breakdown is complete"
    return Compared(not needed, message, len(needed), 0)


@RULES.add("evidence-consistent", "spans: contradictions, ns", "limit, ns")
def _consistent(facts: Facts) -> Compared:
    """Check that spans of all sources fit together: they nest, and no wait or message ends too early. Failed in
    ef82ce2: 2.6 s of contradictions after the ResourceManager's log was truncated during the run."""
    found_ns = sum(clip.ns for clip in facts.clips if clip.kind == "inconsistent")
    allowed_ns = round(INCONSISTENT_SHARE * facts.wall_ns)
    message = (
        f"spans contradict each other for {found_ns / 1e9:.3f} s; "
        f"the limit is {100 * INCONSISTENT_SHARE:.0f} % of the wall time, {allowed_ns / 1e9:.3f} s"
    )
    return Compared(found_ns <= allowed_ns, message, found_ns, allowed_ns)


@RULES.add("transport", "counters: planes as requested", "experiment: planes")
def _transport(facts: Facts) -> Compared | None:
    """Check that the bytes of each plane used the transport that the experiment requests.

    Counters of the kernel and of devices show the transport. Fails for TCP between the addresses of RDMA devices
    (tests/full/guest/test_soft_roce.py).
    """
    asked = [plane for plane in facts.planes or () if plane.agrees is not None]
    if not asked:
        return None
    lines = disagreements(asked)
    used = sum(plane.agrees is True for plane in asked)
    message = lines[0] if lines else f"{used} of {len(asked)} planes used the requested transport"
    return Compared(not lines, message, used, len(asked))
