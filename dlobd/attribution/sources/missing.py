"""All that is missing of a run's sources, and what that leaves unknown in its trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.sources import logs, records, spans
from dlobd.attribution.sources.absence import Absence
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import NotMeasured, Span


def missing(evidence: Evidence) -> tuple[Absence, ...]:
    """What is absent, or does not begin or end as it should; those on which the breakdown depends come first.

    Raises:
        BundleError: nothing was submitted, so that there is no window.
    """
    found = [*spans.absences(evidence), *logs.absences(evidence), *records.absences(evidence)]
    found = [replace(one, how=evidence.damaged.get(one.what, one.how)) for one in found]
    found += records.damaged(evidence, [one.what for one in found])
    found += records.uncollected(evidence, [one.what for one in found])
    there = _layers(evidence)
    found = [replace(one, layers=tuple(layer for layer in one.kind.tells if layer in there)) for one in found]
    return tuple(sorted(found, key=lambda one: not one.kind.decides))


def _layers(evidence: Evidence) -> set[str]:
    """The layers that take part in this way of running."""
    if evidence.native:
        return {"launcher", "tensorflow", "channel"}
    apart = {"yarn": not evidence.on_yarn, "user": not evidence.own}
    return {layer for layer in LAYERS if not apart.get(layer)}


def unknown(trace_spans: Iterable[Span], absences: Sequence[Absence]) -> Iterator[Span]:
    """The spans, marked where their own time may be another layer's."""
    for span in trace_spans:
        hidden = any(_hides(one, span) for one in absences)
        yield replace(span, unknown=True) if hidden else span


def _hides(absence: Absence, span: Span) -> bool:
    return (
        span.end_ns > absence.since_ns
        and any(fnmatchcase(span.lane, lane) for lane in absence.lanes)
        and absence.kind.missing in span.kind.hidden_by
    )


def not_measured(absences: Sequence[Absence]) -> Iterator[NotMeasured]:
    """The layers of which more than their number may be unknown: one entry a layer."""
    for layer in LAYERS:
        if found := [one for one in absences if one.kind.decides and layer in one.layers]:
            more = f", and {len(found) - 1} more" if found[1:] else ""
            yield NotMeasured(layer, UNATTRIBUTED, f"{found[0].what} {found[0].how}{more}")
