"""Export of a run as an OTLP trace in JSON: an `ExportTraceServiceRequest` for OpenTelemetry's collectors and viewers.

The root span is the window. All other spans are descendants, nested and cut as in the attribution. A process is an
OTLP resource, and a wait has a link to the span that released it. One anchor converts all timestamps to wall-clock
time, so their order is correct even if the wall clock was set. IDs depend only on the run: repeated exports are one
trace.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from dlobd import __version__
from dlobd.attribution.attribute import attribute, nested, own_quality, releases
from dlobd.attribution.trace import Span, Trace
from dlobd.columns import NONE, Ints, Numbers, ints
from dlobd.layers import UNATTRIBUTED
from dlobd.report.export.perfetto import blocks
from dlobd.schema import ClockAnchor, Event, Process

INTERNAL = 1
"""Number of `SPAN_KIND_INTERNAL`; OTLP's JSON encodes enumerations as numbers."""

OWN = "dlobd."
"""Prefix of dlobd's attributes. OpenTelemetry requires a prefix for names outside its semantic conventions."""

Json = dict[str, object]


def otlp(trace: Trace, run_id: str, anchor: ClockAnchor) -> Iterator[str]:
    """Yield the pieces of the request as one JSON object; `anchor` maps the monotonic clock to wall-clock time. Raises
    BundleError like `dlobd.attribution.attribute.attribute`."""
    return _Exporter(trace, run_id, anchor).request()


class _Exporter:
    """Builder of the request; assigns the IDs of the spans."""

    def __init__(self, trace: Trace, run_id: str, anchor: ClockAnchor) -> None:
        self.trace, self.run_id, self.anchor = trace, run_id, anchor
        self.columns = nested(trace)
        self.lane = trace.spans.lane[self.columns.row]
        self.first = np.searchsorted(self.lane, np.arange(len(trace.spans.lanes)))
        self.trace_id = _digest(32, run_id)
        self.root_id = _digest(16, run_id, "window")
        wait, by, at_ns = releases(trace, self.columns)
        self.released_by, self.released_ns = np.full((2, len(self.lane)), NONE)
        self.released_by[wait], self.released_ns[wait] = by, at_ns

    def request(self) -> Iterator[str]:
        """Yield the spans by process. The first process is that of the main lane, with the root span."""
        of_trace, encode = self.trace.spans, json.JSONEncoder(separators=(",", ":")).encode
        processes = Numbers[Process | None]()
        main = of_trace.origin[np.flatnonzero(of_trace.lane == 0)[:1]].tolist()
        processes[of_trace.origins[main[0]].process if main else None] = 0
        number = ints([processes[origin.process] for origin in of_trace.origins])[of_trace.origin[self.columns.row]]
        order = np.argsort(number, kind="stable")
        bounds = np.searchsorted(number[order], np.arange(len(processes) + 1)).tolist()
        scope = encode({"name": "dlobd", "version": __version__})
        yield '{"resourceSpans":['
        for place, process in enumerate(processes):
            places = order[bounds[place] : bounds[place + 1]]
            if place and not len(places):
                continue
            resource = encode({"attributes": _resource(process)})
            yield f'{"," if place else ""}{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":['
            spans = chain(() if place else [self.root()], self.exported(places))
            yield from (f"{',' if at else ''}\n{encode(span)}" for at, span in enumerate(spans))
            yield "]}]}"
        yield "]}\n"

    def id_of(self, place: int) -> str:
        """Return the ID of a span, from its lane and place: damaged evidence may repeat a recorded ID."""
        if place == NONE:
            return self.root_id
        lane = int(self.lane[place])
        return _digest(16, self.run_id, self.trace.spans.lanes[lane], str(place - int(self.first[lane])))

    def root(self) -> Json:
        """Build the root span: the window, with times of layers as attributes, start-up and teardown as events."""
        trace, result = self.trace, attribute(self.trace)
        facts: Json = {"run_id": self.run_id, "wall_ns": result.wall_ns}
        facts |= {f"wall.{layer.layer}_ns": layer.ns for layer in result.layers}
        facts[f"wall.{UNATTRIBUTED}_ns"] = result.unattributed_ns
        return {
            **self.times(trace.start_ns, trace.end_ns),
            "traceId": self.trace_id,
            "spanId": self.root_id,
            "name": "dlobd run",
            "kind": INTERNAL,
            "attributes": _attributes(_own(facts)),
            "events": [
                self.event(event, phase)
                for phase, events in (("startup", trace.startup), ("teardown", trace.teardown))
                for event in events
            ],
        }

    def exported(self, places: Ints) -> Iterator[Json]:
        """Yield OTLP spans; recorded times become attributes if they differ from the attributed times."""
        columns = self.columns.start_ns, self.columns.end_ns, self.columns.outer, self.released_by, self.released_ns
        for some in blocks(places):
            rows = zip(some.tolist(), *(column[some].tolist() for column in columns), strict=True)
            spans = self.trace.spans.rows(self.columns.row[some])
            for span, (place, start_ns, end_ns, outer, by, at_ns) in zip(spans, rows, strict=True):
                facts = _facts(span)
                if (start_ns, end_ns) != (span.start_ns, span.end_ns):
                    facts["recorded_start_unix_nano"] = self.unix(span.start_ns)
                    facts["recorded_end_unix_nano"] = self.unix(span.end_ns)
                facts |= {f"attrs.{key}": value for key, value in span.attrs.items()}
                made = {
                    **self.times(start_ns, end_ns),
                    "traceId": self.trace_id,
                    "spanId": self.id_of(place),
                    "parentSpanId": self.id_of(outer),
                    "name": _text(span.name),
                    "kind": INTERNAL,
                    "attributes": _attributes(_own(facts)),
                }
                yield made | ({"links": [self.link(by, at_ns)]} if by != NONE else {})

    def link(self, by: int, at_ns: int) -> Json:
        """Build the link from a wait to the span that released it."""
        facts = _own({"link": "released by", "released_unix_nano": self.unix(at_ns)})
        return {"traceId": self.trace_id, "spanId": self.id_of(by), "attributes": _attributes(facts)}

    def event(self, event: Event, phase: str) -> Json:
        """Build an OTLP event from a start-up or teardown event."""
        facts = _own({"phase": phase, "source": event.source, "resolution_ns": event.resolution_ns})
        at_ns = str(self.unix(event.at_ns))
        return {"timeUnixNano": at_ns, "name": _text(event.event), "attributes": _attributes(facts)}

    def times(self, start_ns: int, end_ns: int) -> Json:
        """Encode start and end as strings, because some JSON parsers lack 64-bit integers."""
        return {"startTimeUnixNano": str(self.unix(start_ns)), "endTimeUnixNano": str(self.unix(end_ns))}

    def unix(self, at_ns: int) -> int:
        """Convert a monotonic timestamp to wall-clock time."""
        return self.anchor.wall_ns + at_ns - self.anchor.monotonic_ns


def _facts(span: Span) -> Json:
    facts: Json = {
        "layer": span.layer,
        "lane": span.lane,
        "span": span.id,
        "degree": own_quality(span),
        "resolution_ns": span.resolution_ns,
        "truncated": span.truncated,
        "call": span.call,
    }
    optional: Json = {
        "source": span.source,
        "waits_for": list(span.waits_for),
        "rendezvous": span.rendezvous,
        "cause": span.cause,
        "cause_period_ns": span.cause_period_ns,
        "unknown": span.unknown,
    }
    return facts | {key: value for key, value in optional.items() if value}


def _resource(process: Process | None) -> list[Json]:
    facts: Json = {"service.namespace": "dlobd", "service.name": "dlobd"}
    if process:
        facts["service.name"] = f"dlobd {process.role}"
        facts["service.instance.id"] = f"{process.host}/{process.role}/{process.index}/{process.pid}"
        facts |= {"host.name": process.host, "process.pid": process.pid or None}
        facts |= _own({"role": process.role, "index": process.index})
    return _attributes(facts)


def _own(facts: Mapping[str, object]) -> Json:
    return {f"{OWN}{key}": value for key, value in facts.items()}


def _attributes(facts: Mapping[str, object]) -> list[Json]:
    """Encode attributes as OTLP's list of key-value pairs; omit None."""
    return [{"key": _text(key), "value": _value(value)} for key, value in facts.items() if value is not None]


def _value(value: object) -> Json:
    """Encode a value as `AnyValue`. Values that viewers reject, such as nested lists, become JSON text."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -(2**63) <= value < 2**63 else {"stringValue": str(value)}
    if isinstance(value, float) and math.isfinite(value):
        return {"doubleValue": value}
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": _text(value if isinstance(value, str) else json.dumps(value, default=str))}


def _text(text: str) -> str:
    """Escape unpaired surrogates; viewers reject a file that contains them."""
    return text.encode(errors="backslashreplace").decode()


def _digest(digits: int, *of: str) -> str:
    text = "\0".join(of).encode(errors="backslashreplace")
    return hashlib.sha256(text).hexdigest()[:digits]
