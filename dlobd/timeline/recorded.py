"""Places recorded spans in a lane, columns to columns.

Only waits for a role, such as the last trainer, are resolved one by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import NOT_RELEASED, Origin, Spans, Wait
from dlobd.columns import NONE, Codes, Flags, Ints, Numbers
from dlobd.errors import BundleError
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.timestamp import error_of
from dlobd.spans import Details, SpanKind, cause_of, kind_of

OWN_MARK = "own mark"

Resolve = Callable[[RecordedSpan, Details], Details]
"""Returns the wait of a `Span`, which names lanes, for a recorded wait, which names roles such as `@trainers`."""

Lanes = Mapping[str, tuple[str, ...]]
"""Role -> the lanes that release its waits."""


@dataclass(frozen=True, slots=True)
class Handover:
    """End of transfers in which the other side was done: a span of `kind` from `since_ns` of each transfer on; NONE if
    unknown. A transfer that is a handover as a whole is no wait."""

    kind: SpanKind
    since_ns: Ints
    error_ns: Ints

    def spans(self, origin: Origin, recorded: RecordedSpans) -> Spans:
        """Return the handovers inside of transfers."""
        inside = np.flatnonzero((recorded.start_ns < self.since_ns) & (self.since_ns < recorded.end_ns))
        number, error_ns = np.arange(len(inside)), self.error_ns[inside]
        if recorded.errors_ns:
            error_ns = np.maximum(error_ns, recorded.errors_ns[1][inside])
        bounds = self.since_ns[inside], recorded.end_ns[inside]
        return Spans.made(origin, [(self.kind, "")], *bounds, number=number, resolution_ns=1 + error_ns)


def without_roles(span: RecordedSpan, wait: Details) -> Details:
    """Return a wait without the roles that it waits for."""
    return {**wait, "waits_for": tuple(lane for lane in wait.get("waits_for", ()) if not lane.startswith("@"))}


def placed(
    lane: str,
    process: RecordedProcess,
    spans: RecordedSpans,
    resolve: Resolve = without_roles,
    lanes: Lanes | None = None,
    handover: Handover | None = None,
) -> Spans:
    """Return recorded spans as spans of a lane. Raises BundleError for an unregistered kind.

    Args:
        resolve: returns the waits for other roles than those of `lanes`.
    """
    kind, of_kinds = _kinds(process, spans)
    origin = Origin(lane, process.process, OWN_MARK, f"{lane}/{process.process.pid}-{process.opened_ns}-")
    resolution_ns = 1 + (np.maximum(*spans.errors_ns) if spans.errors_ns else np.zeros_like(spans.start_ns))
    waits, released_ns = Numbers[Wait](), np.full_like(spans.start_ns, NOT_RELEASED)
    wait, by_row = _waits(spans, waits, released_ns, lanes or {})
    by_row |= spans.is_kind(kinds.WAIT_FOR_STREAM)
    for row, span in zip(np.flatnonzero(by_row).tolist(), spans.where(by_row), strict=True):
        found = resolve(span, {**span.wait})
        wait[row] = waits[_wait(found, span.rendezvous)]
        at_ns = found.get("released_ns")
        released_ns[row] = NOT_RELEASED if at_ns is None else at_ns
        resolution_ns[row] = max(resolution_ns[row], 1 + error_of(at_ns))
    if handover is not None:
        whole = (handover.since_ns != NONE) & (handover.since_ns <= spans.start_ns)
        wait[whole], released_ns[whole] = waits[Wait()], NOT_RELEASED
    return Spans.made(
        origin,
        of_kinds,
        spans.start_ns,
        # a span without an end has no known duration
        np.where(spans.truncated, spans.end_ns, np.maximum(spans.end_ns, spans.start_ns + 1)),
        number=spans.id,
        parent=spans.outer,
        kind=kind,
        resolution_ns=resolution_ns,
        wait=wait,
        waits=list(waits),
        released_ns=released_ns,
        call=spans.call,
        attrs=spans.attrs,
        attributes=spans.attributes,
        truncated=spans.truncated,
    )


def _kinds(process: RecordedProcess, spans: RecordedSpans) -> tuple[Codes, list[tuple[SpanKind, str]]]:
    used, kind = np.unique(spans.kind, return_inverse=True)
    found = []
    for layer, name in (spans.kinds[code] for code in used.tolist()):
        if (row := kind_of(layer, name)) is None:
            raise BundleError(
                f"{process.path} has a span of unknown kind: layer {layer!r}, name {name!r}.",
                "read the run with the version of dlobd that recorded it",
            )
        found.append(row)
    return kind.astype(np.int32), found


def _waits(spans: RecordedSpans, waits: Numbers[Wait], released_ns: Ints, lanes: Lanes) -> tuple[Codes, Flags]:
    """Return the wait of each span, and True for waits for a role without lanes. Sets `released_ns`."""
    used, place = np.unique(spans.wait, return_inverse=True)
    found, unresolved = np.zeros(len(used), np.int32), np.zeros(len(used), np.bool_)
    for number, (details, rendezvous) in enumerate(spans.waits[code] for code in used.tolist()):
        target = next(iter(details.get("waits_for", ())), "")
        known = details | Details(waits_for=lanes[target]) if target in lanes else details
        found[number] = waits[_wait(known, rendezvous)]
        unresolved[number] = any(lane.startswith("@") for lane in known.get("waits_for", ()))
        if (at_ns := details.get("released_ns")) is not None:
            released_ns[place == number] = at_ns
    return found[place], unresolved[place]


def _wait(details: Details, rendezvous: str) -> Wait:
    cause = details.get("cause", "")
    kind = cause_of(cause) if cause else None
    return Wait(tuple(details.get("waits_for", ())), cause, kind, details.get("cause_period_ns", 0), rendezvous)
