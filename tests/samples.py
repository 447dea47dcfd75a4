"""Lines of resources.jsonl, as the sampler of a machine writes them, and the evidence and segments around them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import SEGMENT_KINDS, SEGMENT_LAYERS, Segment, Segments, Span, Spans
from dlobd.columns import NONE
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.topology import Placement, Topology
from dlobd.schema import MAIN_LANE, Process

S = 1_000_000_000
MB = 1_000_000


def host(**changed: Any) -> str:
    line = {"k": "host", "host": "h", "domain": "d", "machine": "m", "cores": 2, "memory_bytes": 8 * MB, "period_ns": S}
    more = {"roots": {"dlobd": 1, "datanode-1": 2}, "sampler": 3, "disks": [], "gpus": []}
    return json.dumps(line | more | changed)


def process(pid: int, parent: int, start_s: float | None = 0, **changed: Any) -> str:
    start_ns = None if start_s is None else int(start_s * S)
    line = {"k": "process", "pid": pid, "parent": parent, "start_ns": start_ns}
    return json.dumps(line | {"name": "p", "main_class": None, "executor": None} | changed)


def sample(at_s: float, busy_s: float, processes: dict[int, tuple[Any, ...]] | None = None, **changed: Any) -> str:
    """A sample; a process is its CPU seconds, those that it reaped, and further columns if they matter."""
    rows = {}
    for pid, (cpu_s, reaped_s, *more) in (processes or {}).items():
        rows[pid] = [int(cpu_s * S), 0, int(reaped_s * S), *(more or [MB, 0, 0])]
    line = {"k": "sample", "t": int(at_s * S), "cpu": [int(busy_s * S), 0, 0], "memory": MB, "disk": None}
    return json.dumps(line | {"net": {}, "gpu": [], "p": rows, "cost": 0} | changed)


def evidence(**parts: Any) -> Evidence:
    plain = {"resources": None, "processes": [], "topology": Topology(Placement.YARN_CLIENT)}
    return cast(Evidence, SimpleNamespace(window={"pid": 99}, **plain | parts))


def segment(start_ns: int, end_ns: int, who: Process | None, layer: str = "spark", lane: str = "driver") -> Segment:
    span = Span("1", None, kinds.SpanKind("x", layer), who, lane, start_ns, end_ns) if who else None
    return Segment(start_ns, end_ns, layer, span, "span", (lane,))


def segments_of(rows: Sequence[Segment]) -> Segments:
    """Return the columns of segments."""
    spans = [row.span for row in rows if row.span]
    places, chains = {id(span): place for place, span in enumerate(spans)}, [row.chain or (MAIN_LANE,) for row in rows]
    columns = [
        [row.start_ns for row in rows],
        [row.end_ns for row in rows],
        [SEGMENT_LAYERS.index(row.layer) for row in rows],
        [places[id(row.span)] if row.span else NONE for row in rows],
        [SEGMENT_KINDS.index(row.kind) for row in rows],
        list(range(len(rows))),
    ]
    return Segments(*(np.array(column, np.int64) for column in columns), Spans.of(spans), chains)
