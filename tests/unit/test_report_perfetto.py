"""The trace view: every slice nests, every nanosecond survives, every track has a name."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlobd.attribution.attribute import nested, releases
from dlobd.attribution.trace import Trace
from dlobd.evidence import resources
from dlobd.evidence.evidence import Evidence
from dlobd.report.export.perfetto import Selection, events, microseconds
from dlobd.schema import Event, Process
from dlobd.timeline.assemble import assemble
from tests.page_traces import trace_events
from tests.samples import host, sample
from tests.strategies import span, trace_of, traces

RUN = Path(__file__).parents[1] / "data" / "quick-run"


def check(document: dict[str, Any]) -> None:
    """Fail on overlapping slices, tracks without names, and times that are negative or not finite, as in Perfetto."""
    document = json.loads(json.dumps(document, allow_nan=False))
    named = {(e["pid"], e["tid"]) for e in document["traceEvents"] if e["name"] == "thread_name"}
    titled = {e["pid"] for e in document["traceEvents"] if e["name"] == "process_name"}
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in {"M", "X", "i", "C", "s", "f"}
        assert event["pid"] in titled
        if event["ph"] in {"X", "i"}:
            assert (event["pid"], event["tid"]) in named
        if event["ph"] == "X":
            assert event["dur"] > 0 <= event["ts"]
            start = int(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + int(event["dur"] * 1000)))
    for slices in tracks.values():
        assert slices == sorted(slices, key=lambda bounds: (bounds[0], -bounds[1])), "a child comes before its parent"
        around: list[int] = []
        for start, end in slices:
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1], "two slices of a track overlap and do not nest"
            around.append(end)
    check_arrows(document["traceEvents"], tracks)


def check_arrows(events: list[dict[str, Any]], tracks: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
    """Fail on an arrow that lacks an end, leads back in time, or has no slice at an end."""
    ends = {"s": {}, "f": {}}
    for event in events:
        if event["ph"] in ends and event["cat"] == "wait":
            at_ns = int(event["ts"] * 1000)
            assert event["id"] not in ends[event["ph"]], "two arrows have one id"
            ends[event["ph"]][event["id"]] = at_ns
            assert any(start <= at_ns < end for start, end in tracks[event["pid"], event["tid"]]), "no slice is there"
    assert ends["s"].keys() == ends["f"].keys()
    assert all(at_ns <= ends["f"][key] for key, at_ns in ends["s"].items())


@settings(max_examples=100, deadline=None)
@given(traces())
def test_any_evidence_makes_a_trace_that_nests(evidence: Trace) -> None:
    check(trace_events(evidence))


@given(st.integers(0, 10**14))
def test_a_nanosecond_survives(ns: int) -> None:
    """Both a reader that rounds and one that cuts get the same integer back, for runs of up to a day and more."""
    assert int(microseconds(ns) * 1000) == ns == round(microseconds(ns) * 1000)


def test_tracks_are_lanes_and_the_wall_has_its_own() -> None:
    rank = Process("node-1", "worker", 1, 77)
    evidence = trace_of(
        1000,
        3000,
        (
            span("join", "spark", 1000, 3000, waits_for=("rank 1",)),
            span("step", "tensorflow", 1001, 2500, "rank 1", process=rank, attrs={"step": 7}, source="own timer"),
        ),
        startup=(Event("first step done", 2500, "own mark"),),
    )
    document = trace_events(evidence)
    check(document)
    events = document["traceEvents"]
    assert [e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]] == [
        "dlobd: where the wall time went",
        "attributed wall",
        "start-up and teardown",
        "host client 0 (pid 1)",
        "client",
        "node-1 worker 1 (pid 77)",
        "rank 1",
    ]
    assert [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [
        ("Spark: join (unexplained)", 0.0, 0.001),
        ("TensorFlow: step", 0.001, 1.499),
        ("Spark: join (unexplained)", 1.5, 0.5),
        ("join", 0.0, 2.0),
        ("step", 0.001, 1.499),
    ]
    assert [(e["name"], e["ts"], e["cat"]) for e in events if e["ph"] == "i"] == [("first step done", 1.5, "startup")]
    assert next(e["args"] for e in events if e["name"] == "step") == {
        "layer": "tensorflow",
        "span": "step",
        "resolution_ns": 1,
        "source": "own timer",
        "step": 7,
    }


def test_counters_show_what_the_machine_used() -> None:
    samples = [
        sample(0, 0, t=at_ns, cpu=[busy_ns, 0, 0], memory=at_ns * 1000, gpu=[[at_ns // 100, 1]])
        for at_ns, busy_ns in ((500, 0), (1500, 2000), (2500, 2500), (3500, 4500), (4500, 4500))
    ]
    sampled = resources.read([host(roots={}, gpus=[{"name": "g", "memory_bytes": 9}]), *samples])
    document = trace_events(trace_of(1000, 3000, (span("a", "client", 1000, 3000),)), sampled)
    check(document)
    found = [e for e in document["traceEvents"] if e["ph"] == "C"]
    by_name = {
        name: [(e["ts"], *e["args"].values()) for e in found if e["name"] == name]
        for name in ("CPU busy, %", "memory in use, MB", "GPU 0 busy, %")
    }
    assert by_name == {
        "CPU busy, %": [(0.0, 100.0), (0.5, 25.0), (1.5, 100.0)],
        "memory in use, MB": [(0.0, 0.5), (0.5, 1.5), (1.5, 2.5)],
        "GPU 0 busy, %": [(0.0, 15), (0.5, 25), (1.5, 35)],
    }


SERVER = ([1, "ps-0", 400, 0], ["ps-0", 1, 400, 0])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (
            [(f"rank-{rank}", 100, [[0, 1, 400, 0], [1, 0, 600, 0]]) for rank in (0, 1)],
            {"7/0/0 to 1": ("rank-0", "rank-1"), "7/0/1 to 0": ("rank-1", "rank-0")},
        ),
        (
            [("rank-1", 100, SERVER), ("ps-0/rank-1", 200, SERVER[:1]), ("ps-0/rank-1", 500, SERVER[1:])],
            {"7/0/1 to ps-0": ("rank-1", "ps-0/rank-1"), "7/0/ps-0 to 1": ("ps-0/rank-1", "rank-1")},
        ),
    ],
    ids=["ranks", "a parameter server"],
)
def test_both_ends_of_a_transfer_are_linked(ends: Any, expected: dict[str, tuple[str, str]]) -> None:
    spans = [
        replace(span(f"{lane} {at_ns}", "channel", at_ns, at_ns + 100, lane), attrs={"call": 7, "transfers": transfers})
        for lane, at_ns, transfers in ends
    ]
    document = trace_events(trace_of(0, 1000, (span("m", "spark", 0, 1000), *spans)))
    check(document)
    tracks = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    flows = {(e["id"], e["ph"]): tracks[e["tid"]] for e in document["traceEvents"] if e["ph"] in ("s", "f")}
    assert flows == {
        (name, phase): lane for name, lanes in expected.items() for phase, lane in zip("sf", lanes, strict=True)
    }


def arrows(evidence: Trace) -> list[tuple[str, float, str, float]]:
    """Return the arrows of waits, sorted: track and time of both ends."""
    document = trace_events(evidence)
    check(document)
    events = document["traceEvents"]
    titles = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ends = {
        (e["ph"], e["id"]): (titles[e["pid"], e["tid"]], e["ts"])
        for e in events
        if e["ph"] in ("s", "f") and e["cat"] == "wait"
    }
    assert all(e["bp"] == "e" for e in events if e["ph"] == "f")
    return sorted((*at, *ends["f", key]) for (phase, key), at in ends.items() if phase == "s")


def test_an_arrow_leads_from_the_release_of_a_wait_to_its_end() -> None:
    """From the lane that is busy the longest, at its last nanosecond before the release, also where a poll goes on."""
    wait = span("join", "spark", 0, 3000, waits_for=("rank 0", "rank 1"), cause="poll", cause_period_ns=900)
    ranks = [span(f"s{rank}", "tensorflow", 100, 1500 + rank * 500, f"rank {rank}") for rank in (0, 1)]
    assert arrows(trace_of(0, 3000, (wait, *ranks))) == [("rank 1", 1.999, "client", 2.999)]
    released = replace(wait, released_ns=1600)
    assert arrows(trace_of(0, 3000, (released, *ranks))) == [("rank 1", 1.599, "client", 2.999)]


def test_the_last_to_enter_a_collective_releases_the_others() -> None:
    steps = [
        span(f"s{rank}", "tensorflow", 100 + rank * 300, 1000 + rank, f"rank {rank}", rendezvous="step 1")
        for rank in range(3)
    ]
    found = arrows(trace_of(0, 2000, (span("m", "client", 0, 2000), *steps)))
    assert found == [("rank 2", 0.7, "rank 0", 0.999), ("rank 2", 0.7, "rank 1", 1.0)]


def test_arrows_of_a_real_run() -> None:
    evidence = assemble(Evidence(RUN))
    check(trace_events(evidence))
    columns = nested(evidence)
    placed = [(span.lane, span.name) for span in evidence.spans.rows(columns.row)]
    wait, by, _ = releases(evidence, columns)
    found = {placed[one]: placed[other] for one, other in zip(wait.tolist(), by.tolist(), strict=True)}
    assert found["client", "wait for spark-submit"] == ("driver", "JVM process exits")
    log = (RUN / "logs" / "driver.stderr").read_text()
    last = re.findall(r": Registered executor .* with ID (\d)", log)[-1]
    assert found["driver", "wait for executors"] == (f"executor-{last}", "executor asks to be registered")
    assert found["driver", "await trainers"] == ("rank-0", "tell driver")
    assert found["executor-2", "await reservations"] == ("executor-1", "register reservation")


def test_a_wait_without_a_known_release_has_no_arrow() -> None:
    late = span("late", "spark", 2500, 2900, "rank 0")
    for waits_for in (("nobody",), ("client",), ("rank 0",), ()):
        wait = span("join", "spark", 0, 2000, waits_for=waits_for)
        assert arrows(trace_of(0, 2000, (wait, late))) == []


def test_a_selection_has_an_interval_and_lanes() -> None:
    evidence = trace_of(
        1000,
        3000,
        (
            span("wait", "spark", 1000, 3000, waits_for=("rank 0",)),
            span("early", "tensorflow", 1000, 1500, "rank 0"),
            span("late", "tensorflow", 2000, 2900, "rank 0"),
            span("other", "tensorflow", 2000, 2900, "rank 1"),
        ),
    )
    found = list(events(evidence, selection=Selection(600, 1200, ["rank 0", "nobody"])))
    assert [event["name"] for event in found if event["ph"] == "X" and event["pid"] > 1] == ["late"]
    assert not [event for event in found if event.get("cat") == "wait"], "an arrow needs both of its ends"
    whole = trace_events(evidence)
    assert {**whole, "traceEvents": list(events(evidence))} == whole
