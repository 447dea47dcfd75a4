"""Span files of a grown run: stored lines with new IDs and times, and the generated steps between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dlobd.columns import Ints
from dlobd.tracing.recorder import Cost

Record = dict[str, Any]

FLUSH_NS = 1_000_000_000
"""Time between two flushes of a recorder, which writes its counters then."""

CPU_SHARE = 0.9
"""Fraction of the added time in which a process is on a core."""

_STEP = """\
{"k":"s","i":%d,"p":{reader},"l":"feed","n":"get","t":%d,"d":%d,"w":{"waits_for":["@feeder"]},"a":{"bytes":{bytes}},"th":"dlobd-reader"}
{"k":"s","i":%d,"p":{trainer},"l":"tensorflow","n":"decode","t":%d,"d":%d}
{"k":"s","i":%d,"p":{trainer},"l":"tensorflow","n":"step","t":%d,"d":%d,"w":{"rendezvous":"step","call":%d}}
"""
_BLOCK = """\
{"k":"s","i":%d,"p":{task},"l":"spark","n":"read block","t":%d,"d":%d}
{"k":"s","i":%d,"p":{task},"l":"feed","n":"put","t":%d,"d":%d,"a":{"bytes":{bytes}}}
"""


@dataclass(frozen=True, slots=True)
class Steady:
    """The training loop in its steady state: durations of spans in the stored run, in ns."""

    decodes: Ints
    steps: Ints
    gets: Ints
    reads: Ints
    block_bytes: int

    @property
    def period_ns(self) -> int:
        """Time of a step: the slowest rank's decode, the step after it, and the loop."""
        return int(self.decodes.max() + self.steps.max()) + 400_000

    @classmethod
    def of(cls, spans: Path) -> Steady:
        """Read the durations in the span files of a run."""
        lines = [json.loads(line) for path in spans.rglob("*.jsonl") for line in path.read_text().splitlines()]
        whole = [line for line in lines if line["k"] == "s"]

        def usual(name: str) -> Ints:
            found: Ints = np.array([line["d"] for line in whole if line["n"] == name])
            usual_ns: Ints = found[found < 2 * np.median(found)]
            return usual_ns

        sizes = [line["a"]["bytes"] for line in whole if line["n"] == "put"]
        return cls(usual("decode"), usual("step"), usual("get"), usual("read block"), sizes[0])

    def trained(self, first: int, steps: Ints, base_ns: Ints, rank: int, idle_ns: int) -> Iterator[tuple[int, ...]]:
        """Yield the fields of the lines of steps, which have the IDs from `first` on. All ranks leave a step together,
        after the last of them has entered it. `idle_ns`: time for which the first get has waited for the feed."""
        entered_ns = base_ns + self.decodes[(7 * steps + 3 * rank) % len(self.decodes)]
        released_ns = base_ns + self.decodes.max() + 100_000 + self.steps[steps % len(self.steps)]
        begun_ns = entered_ns + 20_000
        ended_ns = released_ns + (13 * rank + 5 * steps) % 50 * 1000
        ids = first + 3 * np.arange(len(steps))
        asked_ns, got_ns = base_ns + 150_000, self.gets[(steps + rank) % len(self.gets)]
        if idle_ns:
            asked_ns[0] -= idle_ns
            got_ns[0] = idle_ns - 200_000
        gets = (ids, asked_ns, got_ns)
        decodes, taken = (ids + 1, base_ns, entered_ns - base_ns), (ids + 2, begun_ns, ended_ns - begun_ns, steps)
        return zip(*(column.tolist() for column in (*gets, *decodes, *taken)), strict=True)

    def fed(self, first: int, base_ns: Ints) -> Iterator[tuple[int, ...]]:
        """Yield the fields of the lines of fed blocks. A put waits until the queue has room, almost for a step."""
        ids = first + 2 * np.arange(len(base_ns))
        reads = self.reads[ids % len(self.reads)]
        columns = (ids, base_ns, reads, ids + 1, base_ns + reads + 5_000, self.period_ns - reads - 15_000)
        return zip(*(column.tolist() for column in columns), strict=True)


class SpanFile:
    """A span file while it is written: numbers spans, counts lines."""

    def __init__(self, stream: TextIO, first_id: int) -> None:
        self._stream = stream
        self._next = first_id
        self._lines = self._spans = self._bytes = 0
        self.ids: dict[int, int] = {0: 0}  # stored ID -> ID in this file
        self._use: Record = {}

    def add(self, record: Record, moved: Any = str) -> None:
        """Write a stored line; `moved` changes its text."""
        record = dict(record)
        kind = record["k"]
        if kind in ("s", "b"):
            self.ids[record["i"]] = self._next
            self._next += 1
            self._spans += 1
            record["p"] = self.ids[record["p"]]
        if kind in ("s", "b", "e"):
            record["i"] = self.ids[record["i"]]
        elif kind == "cost":
            record |= {"lines": self._lines, "spans": self._spans, "bytes": self._bytes}
        elif kind == "u":
            self._use = record
        self._write(moved(json.dumps(record, separators=(",", ":"))) + "\n", 1)

    def steps(
        self, steady: Steady, steps: range, begin_ns: int, rank: int, within: tuple[int, int], idle_ns: int
    ) -> None:
        """Write steps with their gets. `within`: stored IDs of reader and trainer."""
        reader, trainer = (self.ids[stored] for stored in within)
        names = {"reader": reader, "trainer": trainer, "bytes": steady.block_bytes}
        for place in self._flushes(steady, len(steps), begin_ns):
            base_ns = begin_ns + place * steady.period_ns
            rows = steady.trained(self._next, steps[0] + place, base_ns, rank, 0 if place[0] else idle_ns)
            self._rows(_filled(_STEP, names), rows, 3 * len(place))

    def blocks(self, steady: Steady, count: int, begin_ns: int, task: int) -> None:
        """Write the blocks of a feed task, with the stored ID `task`."""
        names = {"task": self.ids[task], "bytes": steady.block_bytes}
        for place in self._flushes(steady, count, begin_ns):
            base_ns = begin_ns + place * steady.period_ns
            self._rows(_filled(_BLOCK, names), steady.fed(self._next, base_ns), 2 * len(place))

    def _flushes(self, steady: Steady, count: int, begin_ns: int) -> Iterator[Ints]:
        """Yield the numbers of the steps before each flush, and write the process's counters after them."""
        size = max(1, FLUSH_NS // steady.period_ns)
        for start in range(0, count, size):
            place = np.arange(start, min(count, start + size))
            yield place
            if self._use:
                passed_ns = len(place) * steady.period_ns
                self.add({**used(self._use, passed_ns), "t": begin_ns + int(place[0]) * steady.period_ns + passed_ns})
                self.add(_COST)

    def _rows(self, form: str, rows: Iterator[tuple[int, ...]], spans: int) -> None:
        self._next += spans
        self._spans += spans
        self._write("".join(map(form.__mod__, rows)), spans)

    def _write(self, text: str, lines: int) -> None:
        self._stream.write(text)
        self._lines += lines
        self._bytes += len(text)


_COST: Record = {"k": "cost", **dict.fromkeys((field.name for field in fields(Cost)), 0)}


def used(use: Record, passed_ns: int) -> Record:
    """Return counters of a process after some time on a core."""
    grown = int(CPU_SHARE * passed_ns)
    pairs = {name: [use[name][0] + grown, use[name][1]] for name in ("main", "threads")}
    return {**use, **pairs, "cpu": use["cpu"] + grown}


def _filled(form: str, names: Mapping[str, int]) -> str:
    for name, value in names.items():
        form = form.replace(f"{{{name}}}", str(value))
    return form
