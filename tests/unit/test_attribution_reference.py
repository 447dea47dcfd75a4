"""The attribution in arrays equals the scalar reference, to the nanosecond; so do replays of traces without cycles,
except for rounding."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest

from dlobd.attribution.attribute import attribute, nested, releases
from dlobd.attribution.trace import Span, Trace
from dlobd.attribution.what_if import Retained, WhatIf
from dlobd.errors import BundleError
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import MAIN_LANE, Clip, Interval, NotMeasured
from tests import scalar_attribution as reference
from tests import scalar_what_if
from tests.captured import NAMES, Captured
from tests.strategies import span, trace_of

LANES = (MAIN_LANE, "driver", "rank 0", "rank 1", "executor-1")
NAMED = ("of no row", "step", "read input", "submit RPC", "user code", "trainer")


def make(seed: int) -> Trace:
    """Return a random trace. Its lanes nest, or have a few crossing spans, or many; a short window has equal times; a
    time of a span may be far from the window."""
    chosen = random.Random(seed)
    lanes, wall_ns = LANES[: chosen.randint(1, 5)], chosen.choice([12, 60, 1000])
    crossing = chosen.choice([0.0, 0.0, 0.03, 0.2])
    spans = [
        each for lane in lanes for each in _tree(chosen, lane, lanes, -wall_ns // 10, wall_ns * 11 // 10, crossing, [])
    ]
    if spans and chosen.random() < 0.3:  # damaged evidence
        far = chosen.choice([2**61, 2**63, 10**24])
        spans[0] = replace(spans[0], start_ns=-far) if chosen.random() < 0.5 else replace(spans[0], end_ns=far)
    chosen.shuffle(spans)
    return trace_of(
        0,
        wall_ns if chosen.random() < 0.97 else 0,
        tuple(spans),
        intervals=tuple(_interval(chosen, lanes, wall_ns) for _ in range(chosen.randint(0, 3))),
        not_measured=tuple(
            NotMeasured(chosen.choice(sorted(LAYERS)), chosen.choice([UNATTRIBUTED, *LAYERS]), "why")
            for _ in range(chosen.randint(0, 2))
        ),
        clips=tuple(
            Clip(chosen.choice(["inconsistent", "cycle"]), one.id, chosen.randint(1, 9))
            for one in chosen.sample(spans, min(len(spans), chosen.randint(0, 2)))
        ),
    )


def _tree(
    chosen: random.Random,
    lane: str,
    lanes: tuple[str, ...],
    low: int,
    high: int,
    crossing: float,
    found: list[Span],
    above: tuple[str, ...] = (),
) -> list[Span]:
    edges = sorted(chosen.randint(low, high) for _ in range(2 * chosen.randint(0, 4)))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if chosen.random() < crossing:
            end += chosen.randint(-20, 20)
        own = f"{lane}-{len(found)}"
        found.append(_span(chosen, own, start, end, lane, lanes, above))
        if len(above) < 3:
            _tree(chosen, lane, lanes, start, max(start, end), crossing, found, (*above, own))
    return found


def _span(
    chosen: random.Random, own: str, start: int, end: int, lane: str, lanes: tuple[str, ...], above: tuple[str, ...]
) -> Span:
    def sometimes(share: float) -> bool:
        return chosen.random() < share

    parents = [*above[-1:], own, "nobody"]
    return span(
        own,
        chosen.choice(sorted(LAYERS)),
        start,
        end,
        lane,
        name=chosen.choice(NAMED),
        parent=(above[-1] if above and sometimes(0.9) else chosen.choice(parents)) if sometimes(0.7) else None,
        waits_for=tuple(chosen.sample([*lanes, "nobody"], chosen.randint(1, 2))) if sometimes(0.35) else (),
        released_ns=chosen.randint(min(start, end) - 5, max(start, end) + 5) if sometimes(0.5) else None,
        rendezvous=f"step {chosen.randint(1, 3)}" if sometimes(0.15) else "",
        cause=chosen.choice(["heartbeat", "poll"]) if sometimes(0.3) else "",
        cause_period_ns=chosen.randint(0, 200),
        resolution_ns=chosen.choice([1, 1, 10, 100]),
        truncated=sometimes(0.1),
        unknown=sometimes(0.1),
    )


def _interval(chosen: random.Random, lanes: tuple[str, ...], wall_ns: int) -> Interval:
    start, low = chosen.randint(-10, wall_ns), chosen.randint(0, wall_ns // 3)
    layer, inside, lane = chosen.choice(sorted(LAYERS)), chosen.choice(sorted(LAYERS)), chosen.choice(lanes)
    bounds = start, start + chosen.randint(0, wall_ns), low, low + chosen.randint(0, wall_ns // 3)
    return Interval(layer, inside, lane, *bounds, "low", "high")


def place_of(one: reference.NestedSpan) -> tuple[str, str, int, int, int]:
    return one.span.lane, one.span.id, one.start_ns, one.end_ns, one.depth


def compared(trace: Trace) -> Iterator[tuple[object, object]]:
    found, wanted = attribute(trace), reference.attribute(trace)
    yield [*found.segments], [*wanted.segments]
    names = [field.name for field in fields(found) if field.name != "segments"]
    yield [getattr(found, name) for name in names], [getattr(wanted, name) for name in names]
    lanes, columns = reference.arranged(trace), nested(trace)
    spans = list(trace.spans)
    placed = [(spans[row].lane, spans[row].id, *bounds) for row, *bounds in np.stack(columns[:4], axis=1).tolist()]
    yield sorted(placed), sorted(place_of(one) for lane in lanes.values() for one in lane.nested)
    rows = np.stack(releases(trace, columns), axis=1).tolist()
    expected = [(place_of(one.wait), place_of(one.by), one.at_ns) for one in reference.releases(trace, lanes)]
    yield sorted((placed[wait], placed[by], at_ns) for wait, by, at_ns in rows), sorted(expected)


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_random_traces_are_attributed_as_by_the_reference(first: int) -> None:
    for seed in range(first, first + 100):
        for found, wanted in compared(make(seed)):
            assert found == wanted, seed


def test_lanes_that_are_too_long_together_are_refused() -> None:
    spans = tuple(span(f"s{number}", "spark", 0, 9, f"lane {number}") for number in range(8))
    with pytest.raises(BundleError, match="9 lanes of 1152921505 s exceed the 9223372037 s that fit"):
        attribute(trace_of(0, 2**60, spans))


@pytest.mark.parametrize("name", NAMES)
def test_stored_runs_are_attributed_as_by_the_reference(name: str) -> None:
    for found, wanted in compared(Captured.trace(name)):
        assert found == wanted


def savings(trace: Trace, seed: int) -> tuple[int, int, bool]:
    """Return the saving by a random replay, that of the reference, and True if the reference met a cycle."""
    chosen, rows = np.random.default_rng(seed), len(trace.spans)
    retained = Retained(chosen.integers(0, 3, rows), chosen.integers(0, 3, rows), np.full(rows, 2))
    wanted = scalar_what_if.WhatIf(trace)
    return WhatIf(trace).saved_ns(retained), wanted.saved_ns(retained), wanted.has_cycle


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_random_traces_are_replayed_as_by_the_reference(first: int) -> None:
    found = [(seed, *savings(make(seed), seed)) for seed in range(first, first + 100)]
    without_cycles = [row[:3] for row in found if not row[3]]
    assert len(without_cycles) > 30
    # the reference rounds a piece where the product rounds its parts
    assert [row for row in without_cycles if abs(row[1] - row[2]) > 3] == []
