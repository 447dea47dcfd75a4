"""Finds all missing evidence of a run, and marks the spans of its trace that are unknown without it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from dlobd.attribution.trace import Spans
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


def unknown(trace_spans: Spans, absences: Sequence[MissingEvidence]) -> Spans:
    """Return the spans; those whose own time may belong to another layer are unknown."""
    hidden = trace_spans.unknown.copy()
    for absence in absences:
        lanes = [any(fnmatchcase(lane, pattern) for pattern in absence.lanes) for lane in trace_spans.lanes]
        needs = np.array([absence.kind.missing in kind.hidden_by for kind, _ in trace_spans.kinds], np.bool_)
        of_kinds = needs[trace_spans.kind]
        hidden |= np.array(lanes)[trace_spans.lane] & of_kinds & (trace_spans.end_ns > absence.since_ns)
    return replace(trace_spans, unknown=hidden)


def not_measured(absences: Sequence[MissingEvidence]) -> Iterator[NotMeasured]:
    """Yield an entry for each layer that lacks evidence on which its time depends."""
    for layer in LAYERS:
        if found := [absence for absence in absences if absence.kind.decides and layer in absence.layers]:
            more = f", and {len(found) - 1} more" if found[1:] else ""
            yield NotMeasured(layer, UNATTRIBUTED, f"{found[0].what} {found[0].how}{more}")
