"""The measured share of a run with logs of RPC clients and of phases of JVMs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dlobd.attribution.attribute import attribute, quality
from dlobd.attribution.trace import Trace
from dlobd.evidence.evidence import Evidence
from dlobd.timeline import jvm
from dlobd.timeline.assemble import assemble

SEEN = Path(__file__).parents[1] / "data" / "quick-run"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return assemble(Evidence(SEEN))


def test_two_thirds_of_the_wall_were_measured(trace: Trace) -> None:
    seen: Counter[str] = Counter()
    for segment in attribute(trace).segments:
        known = quality(segment)
        cause = segment.span.cause_kind if segment.span else None
        if known == "named wait" and not (cause and cause.period_is_read):
            known = "unexplained"  # of a length that is only believed
        seen[known] += segment.end_ns - segment.start_ns
    assert (seen["measured"] + seen["named wait"]) / trace.wall_ns >= 2 / 3


def test_phases_are_in_lanes_and_logs_agree(trace: Trace) -> None:
    made = {span.kind for span in trace.spans}
    assert {phase.kind for phase in (*jvm.DRIVER, *jvm.APPLICATION_MASTER, *jvm.REQUEST, *jvm.EXECUTOR)} <= made
    assert {name for name, _ in jvm.FIRST} | {"create JVM", "configure log4j", "GC pause"} <= made
    assert [clip for clip in attribute(trace).clips if clip.kind == "inconsistent"] == []
