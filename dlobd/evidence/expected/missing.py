"""Joins the missing evidence of a run, and marks the spans of its trace that are unknown without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import logs, records, spans
from dlobd.evidence.expected.missing_evidence import MissingEvidence
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import NotMeasured, Span


def missing(evidence: Evidence) -> tuple[MissingEvidence, ...]:
    """Return the missing evidence; evidence on which the breakdown depends comes first.

    Raises:
        BundleError: nothing was submitted, so that there is no window.
    """
    found = [*spans.absences(evidence), *logs.absences(evidence), *records.absences(evidence)]
    found = [replace(one, how=evidence.damaged.get(one.what, one.how)) for one in found]
    found += [*records.damaged(evidence, found)]
    found += [*records.uncollected(evidence, found)]
    there = evidence.topology.layers
    found = [replace(one, layers=tuple(layer for layer in one.kind.tells if layer in there)) for one in found]
    return tuple(sorted(found, key=lambda one: not one.kind.decides))


def unknown(trace_spans: Iterable[Span], absences: Sequence[MissingEvidence]) -> Iterator[Span]:
    """Yield the spans, with a mark if their own time may belong to another layer."""
    for span in trace_spans:
        hidden = any(_hides(one, span) for one in absences)
        yield replace(span, unknown=True) if hidden else span


def _hides(absence: MissingEvidence, span: Span) -> bool:
    return (
        span.end_ns > absence.since_ns
        and any(fnmatchcase(span.lane, lane) for lane in absence.lanes)
        and absence.kind.missing in span.kind.hidden_by
    )


def not_measured(absences: Sequence[MissingEvidence]) -> Iterator[NotMeasured]:
    """Yield an entry for each layer that lacks evidence on which its time depends."""
    for layer in LAYERS:
        if found := [one for one in absences if one.kind.decides and layer in one.layers]:
            more = f", and {len(found) - 1} more" if found[1:] else ""
            yield NotMeasured(layer, UNATTRIBUTED, f"{found[0].what} {found[0].how}{more}")
