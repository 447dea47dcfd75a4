"""Four real runs, captured (tests/data/README.md), through all importers: every span, event and sum as text.

After a wanted change, `pytest tests/golden --update-golden` writes the expected text anew, and the captures' run.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.attribution.trace import Attribution, Span, Trace
from dlobd.bundle.store import Bundle
from dlobd.experiment import own_job
from dlobd.recompute import computed as record
from dlobd.schema import Event
from tests.captured import DATA, Captured
from tests.recorded import read_all
from tests.scalar_attribution import by_lane

GOLDEN = Path(__file__).parent
RUNS = ("quick-run", "killed-trainer", "native-run", "own-run")


def as_text(trace: Trace, found: Attribution) -> str:
    """The whole trace and its attribution; times in milliseconds since the window's start, to the nanosecond."""
    lines = [f"wall {trace.wall_ns} ns", "", "STARTUP"]
    lines += [_event(trace, event) for event in trace.startup]
    lines += ["", "TEARDOWN", *[_event(trace, event) for event in trace.teardown]]
    for lane, spans in by_lane(trace.spans).items():
        lines += ["", f"LANE {lane}"]
        lines += [_span(trace, s) for s in sorted(spans, key=lambda s: (s.start_ns, -s.end_ns, s.id))]
    lines += ["", "ATTRIBUTION", *_attribution(found)]
    return "\n".join(lines) + "\n"


def _event(trace: Trace, event: Event) -> str:
    return (
        f"{_ms(event.at_ns - trace.start_ns)}  {event.event}  [{event.source}, {event.resolution_ns} ns] {event.lane}"
    )


def _span(trace: Trace, span: Span) -> str:
    start, end = span.start_ns - trace.start_ns, span.end_ns - trace.start_ns
    more = [f"waits for {', '.join(span.waits_for)}"] if span.waits_for else []
    more += [f"released {_ms(span.released_ns - trace.start_ns).strip()}"] if span.released_ns else []
    more += [f"rendezvous {span.rendezvous}"] if span.rendezvous else []
    more += [f"cause {span.cause}"] if span.cause else []
    more += ["TRUNCATED"] if span.truncated else []
    return f"{_ms(start)} {_ms(end)}  {span.layer}: {span.name}  [{span.source}] {'; '.join(more)}".rstrip()


def _attribution(found: Attribution) -> Iterator[str]:
    for layer in found.layers:
        yield f"{layer.layer:<12}{layer.ns:>14}{layer.unexplained_ns:>14}{layer.lo_ns:>14}{layer.hi_ns:>14}"
        yield f"    measured {layer.measured_ns}, between marks {layer.between_marks_ns}, waits {layer.named_wait_ns}"
    yield f"{'unattributed':<12}{found.unattributed_ns:>14}"
    for i in found.intervals:
        yield f"interval {i.name}: {i.layer} inside {i.inside} of {i.lane}: {i.lo_ns} to {i.hi_ns} ns"
    for clip in found.clips:
        yield f"clip {clip.kind}: {clip.span}: {clip.ns} ns"


def _refresh(bundle: Bundle) -> None:
    """Makes the figures in a capture's run.json those of the importers of now; what was measured stays as it is."""
    run = bundle.read_json()
    found = record.computed(bundle, own_job.from_dict(run["configuration"])).to_json()
    bundle.write(run | found)
    bundle.seal()


def _ms(ns: int) -> str:
    return f"{ns / 1e6:>13.6f}"


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_whole_trace_is_as_expected(run: str, update_golden: bool, captured: Captured) -> None:
    found = as_text(captured.trace(run), captured.attribution(run))
    golden = GOLDEN / f"{run}.txt"
    if update_golden:
        golden.write_text(found)
        _refresh(Bundle(DATA / run))
    assert found.splitlines() == golden.read_text().splitlines()


def test_the_attribution_sums_exactly(run: str, captured: Captured) -> None:
    trace, found = captured.trace(run), captured.attribution(run)
    assert sum(layer.ns for layer in found.layers) + found.unattributed_ns == found.wall_ns == trace.wall_ns
    assert all(0 <= layer.lo_ns <= layer.ns <= layer.hi_ns for layer in found.layers)
    unexplained_ns = sum(layer.unexplained_ns for layer in found.layers)
    assert unexplained_ns + found.unattributed_ns <= 0.05 * trace.wall_ns


def test_nothing_that_was_recorded_is_lost(run: str, captured: Captured) -> None:
    spans = {span.id.split("/")[-1]: span for span in captured.trace(run).spans}
    ids = {span.id for span in spans.values()}
    recorded = 0
    for process in read_all(DATA / run / "spans"):
        for own in process.spans:
            span = spans[f"{process.process.pid}-{process.opened_ns}-{own.id}"]
            assert (span.layer, span.name, span.start_ns, span.end_ns) == (
                own.layer,
                own.name,
                own.start_ns,
                own.end_ns,
            )
            assert (span.truncated, span.attrs, span.process) == (own.truncated, own.attrs, process.process)
            assert span.parent is None if own.parent == 0 else span.parent in ids
            recorded += 1
    assert recorded > 100


def test_a_capture_is_a_sealed_bundle_without_paths_of_a_machine(run: str) -> None:
    assert Bundle(DATA / run).verify() == []
    for path in (DATA / run).rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not re.search(r"/(?:tmp|root|home|work)/", text), path
