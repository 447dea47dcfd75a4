"""Hypothesis strategies for traces: from well-behaved span trees to evidence that contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from dlobd.attribution.trace import Span, Spans, Trace
from dlobd.layers import LAYERS
from dlobd.schema import MAIN_LANE, Interval, Process
from dlobd.spans import BETWEEN_MARKS, SpanKind, cause_of, kind_of

PROCESS = Process("host", "client", 0, 1)

layers = st.sampled_from(sorted(LAYERS))


def span(name: str, layer: str, start_ns: int, end_ns: int, lane: str = MAIN_LANE, /, **fields: object) -> Span:
    """A span with the fields that matter to a test, the rest filled in; `name` is its ID as well."""
    kind, detail = kind_named(layer, str(fields.pop("name", name)))
    fields.setdefault("cause_kind", cause_of(str(fields.get("cause", ""))))
    values: dict[str, object] = {"parent": None, "process": PROCESS, "detail": detail, **fields}
    return Span(id=name, kind=kind, lane=lane, start_ns=start_ns, end_ns=end_ns, **values)  # type: ignore[arg-type]


def kind_named(layer: str, name: str) -> tuple[SpanKind, str]:
    """Returns the registered kind with its variable part, or a kind for this test only."""
    return kind_of(layer, name) or (SpanKind(name, layer, BETWEEN_MARKS), "")


@st.composite
def well_nested(draw: st.DrawFn, lane: str = MAIN_LANE, length_ns: int = 1000) -> list[Span]:
    """A random tree of spans of one lane: children lie inside their parents and siblings do not overlap."""
    spans: list[Span] = []

    def grow(parent: str | None, low: int, high: int, depth: int) -> None:
        edges = sorted(draw(st.lists(st.integers(low, high), max_size=6, unique=True)))
        for start, end in zip(edges[::2], edges[1::2], strict=False):
            name = f"{lane}-{len(spans)}"
            spans.append(span(name, draw(layers), start, end, lane, parent=parent))
            if depth < 3:
                grow(name, start, end, depth + 1)

    grow(None, 0, length_ns, 0)
    return draw(st.permutations(spans))


@st.composite
def untidy(draw: st.DrawFn, lane: str = MAIN_LANE, others: tuple[str, ...] = ()) -> list[Span]:
    """Spans of one lane as bad evidence has them: crossing, outside the window, truncated, with the end before the
    start, with parents that are wrong, missing or lead in a circle, waiting for anything, also for themselves."""
    names = [f"{lane}-{index}" for index in range(draw(st.integers(0, 10)))]
    return [
        span(
            name,
            draw(layers),
            draw(st.integers(-200, 1200)),
            draw(st.integers(-200, 1200)),
            lane,
            name=draw(st.sampled_from(["of no row", "step", "read input", "submit RPC", "user code", "trainer"])),
            parent=draw(st.none() | st.sampled_from([*names, "nobody"])),
            waits_for=tuple(draw(st.lists(st.sampled_from([lane, "no such lane", *others]), max_size=3))),
            released_ns=draw(st.none() | st.integers(-200, 1200)),
            rendezvous=draw(st.sampled_from(["", "", "step 1", "step 2"])),
            cause=draw(st.sampled_from(["", "heartbeat", "poll"])),
            cause_period_ns=draw(st.integers(0, 500)),
            resolution_ns=draw(st.sampled_from([1, 10, 100])),
            truncated=draw(st.booleans()),
        )
        for name in names
    ]


def trace_of(start_ns: int, end_ns: int, spans: Iterable[Span], **more: Any) -> Trace:
    """Return a trace of spans."""
    return Trace(start_ns, end_ns, Spans.of(spans), **more)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Whole traces of up to four lanes of untidy spans that wait for each other, with intervals."""
    lanes = (MAIN_LANE, "driver", "rank 0", "rank 1")[: draw(st.integers(1, 4))]
    spans = [each for lane in lanes for each in draw(untidy(lane, lanes))]
    intervals = draw(
        st.lists(
            st.builds(
                lambda layer, inside, lane, start, length, lo, more: Interval(
                    layer, inside, lane, start, start + length, lo, lo + more, "low", "high"
                ),
                layers,
                layers,
                st.sampled_from(lanes),
                st.integers(-100, 1100),
                st.integers(0, 600),
                st.integers(0, 300),
                st.integers(0, 300),
            ),
            max_size=3,
        )
    )
    return trace_of(0, draw(st.integers(0, 1000)), tuple(spans), intervals=tuple(intervals))
