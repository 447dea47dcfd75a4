"""Icicle chart of the wall time by layer, span and cause. The axis shows total duration, not chronological time."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from dlobd.attribution.trace import Attribution
from dlobd.layers import LAYERS, UNATTRIBUTED, title
from dlobd.record.run import Run
from dlobd.report.page.timeline import named

SMALLEST = 0.002
"""Names with a smaller fraction of the wall time are drawn as one box with their count and total."""

Tree = dict[str, dict[str, Counter[str]]]
"""Nanoseconds by layer, span name, and kind: own time, a named cause, or unexplained."""

OWN = "own time"


def icicle(run: Run, attribution: Attribution | None) -> dict[str, object]:
    """Compute rectangles [depth, from, until, layer, text], root first. `by_span`: causes are known per span."""
    if not run.wall_ns:
        return {"nodes": [], "by_span": False, "wall_ns": None}
    recorded = run.wall_ns, {row.layer: row.ns for row in run.layers}
    by_span = attribution and recorded == (attribution.wall_ns, {row.layer: row.ns for row in attribution.layers})
    tree = _of_segments(attribution) if attribution and by_span else _of_record(run)
    nodes: list[list[object]] = [[0, 0, run.wall_ns, "", f"wall time: {run.window.name if run.window else ''}"]]
    at = 0
    for layer in [*LAYERS, UNATTRIBUTED]:
        if layer in tree and (ns := _total(tree[layer])):
            nodes.append([1, at, at + ns, layer, title(layer)])
            if layer != UNATTRIBUTED:
                nodes += _layer(tree[layer], layer, at, run.wall_ns * SMALLEST)
            at += ns
    return {"nodes": nodes, "by_span": bool(by_span), "wall_ns": run.wall_ns}


def _layer(names: dict[str, Counter[str]], layer: str, at: int, smallest_ns: float) -> list[list[object]]:
    nodes: list[list[object]] = []
    small: list[int] = []
    for name, kinds in sorted(names.items(), key=lambda item: (-item[1].total(), item[0])):
        ns = kinds.total()
        if ns < smallest_ns:
            small.append(ns)
            continue
        nodes.append([2, at, at + ns, layer, name])
        nodes += _kinds(kinds, layer, at)
        at += ns
    if small:
        nodes.append([2, at, at + sum(small), layer, f"{len(small)} shorter names together"])
    return nodes


def _kinds(kinds: Counter[str], layer: str, at: int) -> Iterator[list[object]]:
    for kind, ns in sorted(kinds.items(), key=lambda item: (-item[1], item[0])):
        if kind != OWN:
            yield [3, at, at + ns, layer, kind]
            at += ns


def _of_segments(attribution: Attribution) -> Tree:
    tree: Tree = defaultdict(lambda: defaultdict(Counter))
    segments = attribution.segments
    number, found = named(segments, [(kind.layer, kind.text(detail)) for kind, detail in segments.spans.kinds])
    total_ns = np.zeros(len(found), np.int64)
    np.add.at(total_ns, number, segments.end_ns - segments.start_ns)
    for (layer, name, cause), ns in zip(found, total_ns.tolist(), strict=True):
        tree[layer][name][cause or OWN] += ns
    return tree


def _of_record(run: Run) -> Tree:
    """Build a tree without causes per span, because the record has causes per layer only."""
    tree: Tree = {row.layer: {name: Counter({OWN: ns}) for name, ns in row.names} for row in run.layers}
    for row in run.layers:
        if rest := row.ns - _total(tree[row.layer]):
            tree[row.layer]["without a name"] = Counter({OWN: rest})
    if run.unattributed_ns:
        tree[UNATTRIBUTED] = {UNATTRIBUTED: Counter({OWN: run.unattributed_ns})}
    return tree


def _total(names: dict[str, Counter[str]]) -> int:
    return sum(kinds.total() for kinds in names.values())
