"""Columns of a trace for its attribution: arrays with one row per span, in the order of the trace. Pure."""

import numpy as np

from dlobd.attribution.trace import NOT_RELEASED, Spans
from dlobd.columns import NONE, Flags, Ints, Numbers, begins_of_runs, ints, places
from dlobd.layers import LAYERS
from dlobd.spans import BETWEEN_MARKS

NUMBER_OF_LAYER = {name: number for number, name in enumerate(LAYERS)}


class Columns:
    """Columns of spans; others are those of `Spans`.

    lane, layer, name, cause: places in `lanes`, `LAYERS`, `names` and `causes`. The main lane is lane 0.
    group: number of the span's collective.
    waits: True for a span that waits for lanes.
    released_ns: time of the release; meaningful where `is_released`.
    """

    def __init__(self, spans: Spans) -> None:
        self.spans, self.lanes, self.lane = spans, spans.lanes, spans.lane
        self.parent, self.start_ns, self.end_ns = spans.parent, spans.start_ns, spans.end_ns
        self.resolution_ns, self.truncated, self.unknown = spans.resolution_ns, spans.truncated, spans.unknown
        names, causes, lanes = Numbers[str](), Numbers[str](), {lane: place for place, lane in enumerate(spans.lanes)}
        self.layer = ints([NUMBER_OF_LAYER[kind.layer] for kind, _ in spans.kinds])[spans.kind]
        self.name = ints([names[kind.text(detail)] for kind, detail in spans.kinds])[spans.kind]
        self.between_marks = spans.truncated | spans.of_kinds(lambda kind: kind.quality == BETWEEN_MARKS)
        self.cause = ints([causes[wait.cause] if wait.cause else NONE for wait in spans.waits])[spans.wait]
        self.period_ns = ints([wait.cause_period_ns if wait.cause else 0 for wait in spans.waits])[spans.wait]
        self.names, self.causes = list(names), list(causes)
        self.group = self._groups()
        self._waits_at: Ints = np.cumsum(ints([0, *(len(wait.waits_for) for wait in spans.waits)]))
        self._waits_for = ints([lanes.get(lane, NONE) for wait in spans.waits for lane in wait.waits_for])
        self.waits: Flags = (np.diff(self._waits_at) > 0)[spans.wait]
        self.is_released: Flags = spans.released_ns != NOT_RELEASED
        self.released_ns = np.where(self.is_released, spans.released_ns, 0)

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def releasing(self) -> tuple[Ints, Ints]:
        """Rows of the spans that wait, with each lane that releases them."""
        rows = np.flatnonzero(self.waits)
        wait = self.spans.wait[rows]
        sizes = np.diff(self._waits_at)[wait]
        return np.repeat(rows, sizes), self._waits_for[places(self._waits_at[wait], sizes)]

    def _groups(self) -> Ints:
        """Return the number of each span's collective, which is its rendezvous and call."""
        spans, texts = self.spans, Numbers[str]()
        rendezvous = ints([texts[wait.rendezvous] if wait.rendezvous else NONE for wait in spans.waits])[spans.wait]
        members, group = np.flatnonzero(rendezvous != NONE), np.full(len(spans), NONE)
        members = members[np.lexsort((spans.call[members], rendezvous[members]))]
        group[members] = np.cumsum(begins_of_runs(spans.call[members], rendezvous[members])) - 1
        return group
