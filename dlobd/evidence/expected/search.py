"""Finds all missing evidence of a run, and marks the spans of its trace that are unknown without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from dlobd.attribution.trace import Span
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import logs, records, spans
from dlobd.evidence.expected.absence import MissingEvidence
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import NotMeasured


def missing(evidence: Evidence) -> tuple[MissingEvidence, ...]:
    """Return the missing evidence, decisive evidence first. Raises BundleError if nothing was submitted."""
    found = [*spans.absences(evidence), *logs.absences(evidence), *records.absences(evidence)]
    found = [replace(missing, how=evidence.damaged.get(missing.what, missing.how)) for missing in found]
    found += [*records.damaged(evidence, found)]
    found += [*records.uncollected(evidence, found)]
    there = evidence.topology.layers
    found = [replace(each, layers=tuple(layer for layer in each.kind.layers if layer in there)) for each in found]
    return tuple(sorted(found, key=lambda each: not each.kind.decides))


def unknown(trace_spans: Iterable[Span], absences: Sequence[MissingEvidence]) -> Iterator[Span]:
    """Yield all spans; mark a span as unknown if its own time may belong to another layer."""
    for span in trace_spans:
        hidden = any(
            span.end_ns > absence.since_ns
            and any(fnmatchcase(span.lane, lane) for lane in absence.lanes)
            and absence.kind.missing in span.kind.hidden_by
            for absence in absences
        )
        yield replace(span, unknown=True) if hidden else span


def not_measured(absences: Sequence[MissingEvidence]) -> Iterator[NotMeasured]:
    """Yield an entry for each layer that lacks evidence on which its time depends."""
    for layer in LAYERS:
        if found := [absence for absence in absences if absence.kind.decides and layer in absence.layers]:
            more = f", and {len(found) - 1} more" if found[1:] else ""
            yield NotMeasured(layer, UNATTRIBUTED, f"{found[0].what} {found[0].how}{more}")
