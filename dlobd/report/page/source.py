"""Reading of a bundle for the page: record, trace if the evidence is readable, and missing files."""

from dataclasses import dataclass

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution, Trace
from dlobd.bundle.store import Bundle
from dlobd.errors import DlobdError
from dlobd.evidence.resources import SampledHost
from dlobd.record.run import Run
from dlobd.timeline.assemble import read

SHOWN_PROBLEMS = 8
"""Maximum changed files in the list; further files are counted."""


@dataclass(frozen=True, slots=True)
class Source:
    """A run read from its bundle.

    record: content of run.json.
    trace, attribution, sampled: None if the evidence is unreadable; `sampled` also if the machine was not sampled.
    changed: missing or changed files, one line each.
    no_timeline: reason for a missing trace; "" if there is a trace.
    """

    run: Run
    record: dict[str, object]
    trace: Trace | None
    attribution: Attribution | None
    sampled: SampledHost | None
    changed: tuple[str, ...]
    no_timeline: str = ""


def source(bundle: Bundle) -> Source:
    """Read a bundle; if its evidence is unreadable, read only the record.
    Raises BundleError if its run.json is missing, damaged or of a newer version."""
    record = bundle.read_json()
    run = Run.from_json(record)
    changed = _problems(bundle)
    try:
        trace, sampled = read(bundle.path)
        found = attribute(trace)
    except Exception as error:  # noqa: BLE001  damaged evidence can raise anything; the record is still valid
        unreadable = f"the evidence cannot be read ({type(error).__name__}: {str(error)[:200]})."
        why = error.what if isinstance(error, DlobdError) else unreadable
        return Source(run, record, None, None, None, changed, f"No timeline: {why}")
    return Source(run, record, trace, found, sampled, (*_differs(run, found), *changed))


def _problems(bundle: Bundle) -> tuple[str, ...]:
    try:
        found = bundle.verify()
    except DlobdError as error:
        return (error.what,)
    rest = len(found) - SHOWN_PROBLEMS
    more = [f"{rest} more files are changed, missing or not in hashes. dlobd verify lists them."] if rest > 0 else []
    return (*found[:SHOWN_PROBLEMS], *more)


def _differs(run: Run, found: Attribution) -> tuple[str, ...]:
    """Return a warning if the layers recomputed from the evidence differ from the record."""
    recorded = {row.layer: row.ns for row in run.layers}
    if recorded == {row.layer: row.ns for row in found.layers}:
        return ()
    return ("figures from the evidence differ from run.json; the timeline shows the evidence: dlobd verify",)
