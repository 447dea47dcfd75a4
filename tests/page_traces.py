"""Traces and bundles for tests of the report page."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution, Span, Trace
from dlobd.bundle.store import Bundle
from dlobd.evidence.resources import SampledHost
from dlobd.report.export import perfetto
from dlobd.schema import MAIN_LANE, Process
from dlobd.spans import SPANS
from tests.strategies import trace_of

DATA = Path(__file__).parent / "data"

HOSTILE = (
    "<script>document.title = 'broken'</script>",
    '"><img src=x onerror="document.title=1">',
    "</script><script>document.title = 'broken'</script>",
    "\u202egnorw\u202c and \u2066so\u2069 \u2028 on",
    "{{data}} {{policy}} ${x} `y`",
    "=HYPERLINK(1,2)",
    "a" * 10_000,
)
"""Names that a page must show as they are, and never obey."""


def copied(name: str, to: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Bundle:
    """A captured bundle at another place, its record changed and its files sealed again."""
    path = to / name
    shutil.copytree(DATA / name, path)
    if change:
        record = json.loads((path / "run.json").read_text())
        change(record)
        (path / "run.json").write_text(json.dumps(record))
    bundle = Bundle(path)
    bundle.seal()
    return bundle


def hostile(record: dict[str, Any]) -> None:
    script, image, end, marks, braces, formula, long = HOSTILE
    record["experiment"] = image
    record["reason"] = long
    record["command"] = [*record["command"], *HOSTILE]
    record["warnings"] = [script, marks, long]
    record["warnings"] += [formula, braces]
    record["versions"] |= {script: image}
    record["platform"] |= {"host": end, "processor": long}
    record["startup"][1] |= {"event": script, "source": end}
    record["startup"][2] |= {"event": long, "source": marks}
    record["not_measured"][0] |= {"why": image}
    for place, layer in enumerate(record["layers"]):
        layer["names"] = [[HOSTILE[place % len(HOSTILE)], ns] for _, ns in layer["names"]]
    record["findings"] = [finding(says=script, remedy=image, unless=end, evidence=[marks, long, braces])]


def finding(**changes: Any) -> dict[str, Any]:
    found = {
        "finding": "feed-poll",
        "layer": "feed",
        "says": "The feed's poll took 1.000 s.",
        "ns": 1_000_000_000,
        "saves_ns": 900_000_000,
        "lo_ns": 800_000_000,
        "above_noise": True,
        "evidence": ["span join queue: 1.000 s"],
        "remedy": "input = direct",
        "unless": "the data set does not fit into memory",
    }
    return found | changes


def long_trace(count: int = 100_000, lanes: int = 5) -> Trace:
    """So many spans of a microsecond and more, of three names, in lanes that the client waits for."""
    each = count // lanes
    step_ns = 10_000
    wall_ns = each * step_ns
    spans = [_span("main", MAIN_LANE, "client", "wait for spark-submit", 0, wall_ns)]
    for lane in range(lanes):
        for place in range(each):
            start_ns = place * step_ns
            name, layer = (("step", "tensorflow"), ("next batch", "tensorflow"), ("get", "feed"))[place % 3]
            span = _span(f"{lane}-{place}", f"rank-{lane}", layer, name, start_ns, start_ns + 1_000 + place % 7_000)
            spans.append(span)
    return trace_of(0, wall_ns, tuple(spans))


@cache
def long_run() -> tuple[Trace, Attribution]:
    trace = long_trace()
    return trace, attribute(trace)


def _span(name: str, lane: str, layer: str, title: str, start_ns: int, end_ns: int) -> Span:
    return Span(name, None, SPANS[layer, title], Process("host", lane, 0, 1), lane, start_ns, end_ns, source="own mark")


def sums(found: dict[str, Any]) -> Counter[tuple[str, str]]:
    """Sum the lengths of a timeline by (lane, name); aggregation must not change these sums."""
    total: Counter[tuple[str, str]] = Counter()
    for row in found["slices"]:
        for place in range(7, len(row), 3):
            name = found["names"][row[place]].partition("\n")[2]
            total[found["lanes"][row[0]]["name"], name] += row[place + 2]
    return total


def trace_events(trace: Trace, sampled: SampledHost | None = None) -> dict[str, Any]:
    """The whole trace for Perfetto as one JSON object."""
    return {"traceEvents": list(perfetto.events(trace, sampled)), **perfetto.members(trace)}
