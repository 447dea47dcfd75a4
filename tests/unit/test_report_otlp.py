"""The OTLP trace: ids that fit together, times of the window, and what a reader of OTLP's JSON accepts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from dlobd.attribution.trace import Trace
from dlobd.evidence.evidence import Evidence
from dlobd.report.export.otlp import otlp as pieces
from dlobd.schema import ClockAnchor, Event, Process
from dlobd.spans import SpanKind
from dlobd.timeline.assemble import assemble
from tests.strategies import span, trace_of, traces

DATA = Path(__file__).parents[1] / "data"
ANCHOR = ClockAnchor("domain", 5_000, 1_700_000_000_000_000_000, 10)
WALL_NS = ANCHOR.wall_ns - ANCHOR.monotonic_ns


def otlp(trace: Trace, run_id: str, anchor: ClockAnchor) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(pieces(trace, run_id, anchor)))
    return found


SPAN = {
    "traceId": str,
    "spanId": str,
    "parentSpanId": str,
    "name": str,
    "kind": int,
    "startTimeUnixNano": str,
    "endTimeUnixNano": str,
    "attributes": list,
    "events": list,
    "links": list,
}
"""Members of a span in trace.proto that dlobd writes, in lower camel case, and their types in JSON."""


def attributes_of(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return attributes as a dictionary; fail on duplicate keys and on values of other types."""
    found: dict[str, Any] = {}
    for pair in attributes:
        assert pair.keys() == {"key", "value"}
        assert pair["key"]
        assert pair["key"] not in found
        ((kind, value),) = pair["value"].items()
        if kind == "arrayValue":
            value = [each["stringValue"] for each in value["values"]]
        elif kind == "intValue":
            value = int(value)
            assert -(2**63) <= value < 2**63
        else:
            assert type(value) is {"stringValue": str, "boolValue": bool, "doubleValue": float}[kind]
        found[pair["key"]] = value
    return found


def check(request: dict[str, Any], trace: Trace) -> list[dict[str, Any]]:
    """Return the spans of a request; fail on anything that a reader refuses."""
    request = json.loads(json.dumps(request, allow_nan=False).encode())
    assert request.keys() == {"resourceSpans"}
    spans = []
    for resource in request["resourceSpans"]:
        assert resource.keys() == {"resource", "scopeSpans"}
        assert attributes_of(resource["resource"]["attributes"])["service.name"]
        for scope in resource["scopeSpans"]:
            assert scope["scope"]["name"] == "dlobd"
            assert scope["spans"]
            spans += scope["spans"]
    ids = {one["spanId"]: one for one in spans}
    assert len(ids) == len(spans), "two spans have one id"
    assert len({one["traceId"] for one in spans}) == 1
    start, end = (WALL_NS + at_ns for at_ns in (trace.start_ns, trace.end_ns))
    for one in spans:
        assert all(type(value) is SPAN[key] for key, value in one.items())
        assert re.fullmatch(r"[0-9a-f]{32}", one["traceId"])
        assert re.fullmatch(r"[0-9a-f]{16}", one["spanId"])
        assert int(one["spanId"], 16) > 0
        assert one["kind"] == 1
        attributes_of(one["attributes"]), [attributes_of(event["attributes"]) for event in one.get("events", ())]
        around = ids[one["parentSpanId"]] if "parentSpanId" in one else one
        low, high = int(around["startTimeUnixNano"]), int(around["endTimeUnixNano"])
        assert start <= low <= int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"]) <= high <= end
        for link in one.get("links", ()):
            assert link["traceId"] == one["traceId"]
            assert link["spanId"] in ids
            assert attributes_of(link["attributes"])["dlobd.released_unix_nano"] <= int(one["endTimeUnixNano"])
    assert [one["name"] for one in spans if "parentSpanId" not in one] == ["dlobd run"]
    return spans


@settings(max_examples=100, deadline=None)
@given(traces())
def test_any_evidence_makes_one_tree(evidence: Trace) -> None:
    check(otlp(evidence, "run", ANCHOR), evidence)


@pytest.mark.parametrize("capture", ["quick-run", "own-run", "native-run", "killed-trainer"])
def test_a_real_run_makes_one_tree(capture: str) -> None:
    evidence = assemble(Evidence(DATA / capture))
    request = otlp(evidence, capture, ANCHOR)
    spans = check(request, evidence)
    assert len(request["resourceSpans"]) == len({span.process for span in evidence.spans})
    assert any("links" in one for one in spans)


def test_processes_are_resources_and_lanes_hang_below_the_window() -> None:
    rank = Process("node-1", "worker", 1, 77)
    evidence = trace_of(
        1_000,
        9_000,
        (
            span("join", "spark", 1_000, 9_000, waits_for=("rank-1",)),
            span("train", "tensorflow", 2_000, 8_000, "rank-1", process=rank, source="own clock"),
            span("step", "tensorflow", 3_000, 4_000, "rank-1", process=rank, attrs={"step": 7}, call=0, truncated=True),
        ),
        startup=(Event("first step done", 4_000, "own mark"),),
    )
    request = otlp(evidence, "20260102T030405Z-0a1b", ANCHOR)
    root, join, train, step = check(request, evidence)
    resources = [attributes_of(one["resource"]["attributes"]) for one in request["resourceSpans"]]
    assert resources[1] == {
        "service.namespace": "dlobd",
        "service.name": "dlobd worker",
        "service.instance.id": "node-1/worker/1/77",
        "host.name": "node-1",
        "process.pid": 77,
        "dlobd.role": "worker",
        "dlobd.index": 1,
    }
    wall = attributes_of(root["attributes"])
    assert wall["dlobd.wall_ns"] == 8_000 == wall["dlobd.wall.spark_ns"] + wall["dlobd.wall.tensorflow_ns"]
    assert [(event["name"], event["timeUnixNano"]) for event in root["events"]] == [
        ("first step done", str(WALL_NS + 4_000))
    ]
    assert [one["parentSpanId"] for one in (join, train, step)] == [root["spanId"], root["spanId"], train["spanId"]]
    assert step["startTimeUnixNano"] == "1699999999999998000"
    assert attributes_of(step["attributes"]) == {
        "dlobd.layer": "tensorflow",
        "dlobd.lane": "rank-1",
        "dlobd.span": "step",
        "dlobd.degree": "between marks",  # its end was not seen
        "dlobd.resolution_ns": 1,
        "dlobd.truncated": True,
        "dlobd.call": 0,
        "dlobd.attrs.step": 7,
    }
    assert attributes_of(join["attributes"])["dlobd.waits_for"] == ["rank-1"]
    (link,) = join["links"]
    assert link["spanId"] == train["spanId"]
    assert attributes_of(link["attributes"]) == {
        "dlobd.link": "released by",
        "dlobd.released_unix_nano": WALL_NS + 8_000,
    }
    assert "links" not in step


def test_spans_are_exported_as_counted_with_ids_of_the_run() -> None:
    evidence = trace_of(0, 9_000, (span("a", "spark", 0, 500), span("b", "spark", 300, 700, parent="a")))
    _, _, cut = check(otlp(evidence, "run", ANCHOR), evidence)
    assert (cut["startTimeUnixNano"], cut["endTimeUnixNano"]) == (str(WALL_NS + 300), str(WALL_NS + 500))
    assert attributes_of(cut["attributes"])["dlobd.recorded_end_unix_nano"] == WALL_NS + 700
    evidence = trace_of(0, 9, (span("a", "spark", 0, 9), span("a", "spark", 2, 3)))
    one, again, other = (check(otlp(evidence, run, ANCHOR), evidence) for run in ("run", "run", "another"))
    assert one == again
    assert not {each["spanId"] for each in one} & {each["spanId"] for each in other}


@pytest.mark.parametrize(
    "name", ["\ud800 half a pair", 'a "quoted", name', "two\nlines\0\x1b[31m", "", "ü" * 5000, "</script>"]
)
def test_names_are_taken_as_they_are(name: str) -> None:
    attrs: dict[str, Any] = {"text": name, f"key {name}": 1, "list": [name], "nested": [[0, name]]}
    hostile = span("a", "spark", 0, 9, process=Process(name, "driver", 0, 0))
    evidence = trace_of(0, 9, (replace(hostile, kind=SpanKind(name, "spark"), attrs=attrs),))
    request = otlp(evidence, name, ANCHOR)
    _, one = check(request, evidence)
    expected = name.replace("\ud800", "\\ud800")
    assert one["name"] == expected
    found = attributes_of(one["attributes"])
    assert found["dlobd.attrs.text"] == found["dlobd.attrs.list"][0] == expected
    assert json.loads(found["dlobd.attrs.nested"]) == [[0, name]]
    assert "process.pid" not in attributes_of(request["resourceSpans"][0]["resource"]["attributes"])


def test_numbers_that_json_does_not_have_are_text() -> None:
    attrs = {"large": 2**63, "least": -(2**63), "nan": float("nan"), "inf": float("inf"), "half": 0.5, "none": None}
    evidence = trace_of(0, 9, (span("a", "spark", 0, 9, attrs=attrs),))
    _, one = check(otlp(evidence, "run", ANCHOR), evidence)
    found = {key.removeprefix("dlobd.attrs."): value for key, value in attributes_of(one["attributes"]).items()}
    assert {key: found[key] for key in attrs if key in found} == {
        "large": str(2**63),
        "least": -(2**63),
        "nan": "NaN",
        "inf": "Infinity",
        "half": 0.5,
    }
