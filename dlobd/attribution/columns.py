"""Columns of a trace: arrays with one row per span, in the order of the trace. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlobd.columns import NONE, Flags, Ints, ints
from dlobd.layers import LAYERS
from dlobd.schema import MAIN_LANE, Span
from dlobd.spans import BETWEEN_MARKS

NUMBER_OF_LAYER = {name: number for number, name in enumerate(LAYERS)}


class Columns:
    """Columns of spans.

    lane, layer, name, cause: places in `lanes`, `LAYERS`, `names` and `causes`. The main lane is lane 0.
    parent: row of the recorded parent in the same lane.
    group: number of the span's collective.
    waits_for, waits_at: lanes that release row i are `waits_for[waits_at[i] : waits_at[i + 1]]`.
    released_ns: time of the release; meaningful where `is_released`.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        lanes: dict[str, int] = {MAIN_LANE: 0}
        groups, names, causes = {"": NONE}, dict[str, int](), {"": NONE}
        rows: dict[tuple[str, str], int] = {}
        for row, span in enumerate(spans):
            rows.setdefault((span.lane, span.id), row)

        def flags(values: list[bool]) -> Flags:
            return np.array(values, np.bool_)

        self.lane = ints([lanes.setdefault(span.lane, len(lanes)) for span in spans])
        self.parent = ints([NONE if s.parent is None else rows.get((s.lane, s.parent), NONE) for s in spans])
        self.start_ns = ints([span.start_ns for span in spans])
        self.end_ns = ints([span.end_ns for span in spans])
        self.resolution_ns = ints([span.resolution_ns for span in spans])
        self.truncated = flags([span.truncated for span in spans])
        self.unknown = flags([span.unknown for span in spans])
        self.layer = ints([NUMBER_OF_LAYER[span.layer] for span in spans])
        self.between_marks = flags([span.truncated or span.kind.quality == BETWEEN_MARKS for span in spans])
        self.name = ints([names.setdefault(span.name, len(names)) for span in spans])
        self.cause = ints([causes.setdefault(span.cause, len(causes) - 1) for span in spans])
        self.period_ns = ints([span.cause_period_ns if span.cause else 0 for span in spans])
        self.group = ints([groups.setdefault(span.rendezvous, len(groups) - 1) for span in spans])
        self.waits_at: Ints = np.cumsum(ints([0, *(len(span.waits_for) for span in spans)]))
        self.waits_for = ints([lanes.get(lane, NONE) for span in spans for lane in span.waits_for])
        self.is_released = flags([span.released_ns is not None for span in spans])
        self.released_ns = ints([span.released_ns or 0 for span in spans])
        self.lanes, self.names, self.causes = [*lanes], [*names], [*causes][1:]

    def __len__(self) -> int:
        return len(self.spans)
