"""Files of `dlobd.tracing` become processes with spans and instants.

A file may end anywhere: its writer may be dead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dlobd.schema import ClockAnchor, Process
from dlobd.tracing import names
from dlobd.tracing.clock_offset import Exchange
from dlobd.tracing.recorder import Cost


@dataclass(slots=True)
class RecordedSpan:
    """A span as written; `end_ns` is the last evidence of the process where the end is missing.

    `rendezvous` is the kind of collective whose member it is, if any, and `call` the collective's number, or that of
    the step that it is; `wait` holds neither.
    """

    id: int
    parent: int
    layer: str
    name: str
    start_ns: int
    end_ns: int
    truncated: bool
    wait: dict[str, Any]
    attrs: dict[str, Any]
    thread: str
    rendezvous: str = ""
    call: int | None = None

    @property
    def is_step(self) -> bool:
        """Whether it is a whole training step, the first or a later one."""
        return self.layer == "tensorflow" and self.call is not None and self.rendezvous in ("", names.STEP_RENDEZVOUS)


@dataclass(frozen=True, slots=True)
class Instant:
    """A named point in time."""

    name: str
    at_ns: int
    attrs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Use:
    """What the kernel had counted of a process at `at_ns`, since its start; None where it does not say.

    `main` and `threads` are pairs: on a core, and waiting for one; of the main thread, and of all that were seen.
    `cpu_ns` has ended threads too. `pressure` is the machine's: some task waited for a core, some for a disk.
    """

    at_ns: int
    main: tuple[int, int] | None
    threads: tuple[int, int] | None
    cpu_ns: int | None
    read_bytes: int | None
    major_faults: int | None
    block_io_ns: int | None
    pressure: tuple[int, int] | None


@dataclass(slots=True)
class RecordedProcess:
    """What one process wrote."""

    process: Process
    domain: str
    opened_ns: int
    forked: bool
    path: Path
    last_ns: int = 0
    spans: list[RecordedSpan] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)
    anchors: list[ClockAnchor] = field(default_factory=list)
    exchanges: list[tuple[str, Exchange]] = field(default_factory=list)  # with which clock domain
    uses: list[Use] = field(default_factory=list)
    lines: int = 0  # whole ones
    bad_lines: int = 0
    cost: Cost | None = None  # as the recorder last said it; None if it did not
    cost_at: int = 0  # whole lines before that
    parent: int | None = None  # pid of the process that started it

    @property
    def rank(self) -> int | None:
        """Its number among the ranks, of which the chief is 0; None of a process that does not train."""
        return {"chief": self.process.index, "worker": self.process.index + 1}.get(self.process.role)

    def instant(self, name: str) -> Instant | None:
        """The first instant of that name."""
        return next((i for i in self.instants if i.name == name), None)

    def named(self, name: str) -> list[RecordedSpan]:
        """All spans of that name, in the order of their begin."""
        return [span for span in self.spans if span.name == name]

    def steps(self) -> list[RecordedSpan]:
        """All its training steps, in the order of their begin."""
        return [span for span in self.spans if span.is_step]


def trainers(processes: Iterable[RecordedProcess]) -> list[RecordedProcess]:
    """Those that train: the chief and the workers."""
    return [process for process in processes if process.rank is not None]


def read(path: Path) -> RecordedProcess | None:
    """The process that wrote `path`; None if not even its first line is whole."""
    found: RecordedProcess | None = None
    open_spans: dict[int, RecordedSpan] = {}
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
            if line["k"] == "process":
                found = _process(line, path, found)
            elif found:
                _add(found, line, open_spans)
            if found:
                found.lines += 1
        except (ValueError, KeyError, TypeError):
            # a line cut by kill -9; the count is shown
            if found:
                found.bad_lines += 1
    if found:
        found.last_ns = max(found.last_ns, found.opened_ns)
        for span in open_spans.values():
            span.end_ns = found.last_ns
    return found


def _process(line: dict[str, Any], path: Path, found: RecordedProcess | None) -> RecordedProcess:
    """A process may come again, when it has become something else: the last line holds."""
    process = Process(line["host"], line["role"], line["index"], line["pid"], line["start_ns"])
    if found is None:
        return RecordedProcess(
            process, line["domain"], line["opened_ns"], line["forked"], path,
            parent=line.get("parent"),
        )  # fmt: skip
    found.process = process
    return found


def _add(found: RecordedProcess, line: dict[str, Any], open_spans: dict[int, RecordedSpan]) -> None:
    kind = line["k"]
    if kind == "anchor":
        found.anchors.append(ClockAnchor(found.domain, line["monotonic_ns"], line["wall_ns"], line["error_ns"]))
        found.last_ns = max(found.last_ns, line["monotonic_ns"])
    elif kind in ("s", "b"):
        end_ns = line["t"] + (line["d"] if kind == "s" else 0)
        wait = dict(line.get("w", {}))
        span = RecordedSpan(
            line["i"], line["p"], line["l"], line["n"], line["t"], end_ns, kind == "b",
            wait, line.get("a", {}), line.get("th", ""), *_rendezvous(wait),
        )  # fmt: skip
        if kind == "b":
            open_spans[span.id] = span
        found.spans.append(span)
        found.last_ns = max(found.last_ns, span.end_ns)
    elif kind == "e":
        found.last_ns = max(found.last_ns, line["t"])
        if ended := open_spans.pop(line["i"], None):
            ended.end_ns = line["t"]
            ended.truncated = False
            ended.attrs = {**ended.attrs, **line.get("a", {})}
    elif kind == "x":
        pair = Exchange(line["sent_a_ns"], line["received_b_ns"], line["sent_b_ns"], line["received_a_ns"])
        if pair.received_a_ns < pair.sent_a_ns or pair.sent_b_ns < pair.received_b_ns:
            raise ValueError("a clock ran backwards")
        found.exchanges.append((line["domain_b"], pair))
        found.last_ns = max(found.last_ns, pair.received_a_ns)
    elif kind == "i":
        found.instants.append(Instant(line["n"], line["t"], line.get("a", {})))
        found.last_ns = max(found.last_ns, line["t"])
    elif kind == "u":
        main, threads, stalled = (
            tuple(pair) if pair else None for pair in map(line.get, ("main", "threads", "pressure"))
        )
        rest = (line["cpu"], line["read"], line["major"], line["block_io"])
        found.uses.append(Use(line["t"], main, threads, *rest, stalled))
        found.last_ns = max(found.last_ns, line["t"])
    elif kind == "cost":
        # a sum; unknown members are dropped
        found.cost = Cost(**{field.name: line[field.name] for field in fields(Cost)})
        found.cost_at = found.lines


def _rendezvous(wait: dict[str, Any]) -> tuple[str, int | None]:
    """Takes kind and number of a collective out of a recorded wait."""
    kind, call = str(wait.pop("rendezvous", "")), wait.pop("call", None)
    return kind, None if call is None else int(call)


def read_all(directory: Path) -> list[RecordedProcess]:
    """All processes that wrote below `directory`, in the order in which they opened their files."""
    found = [process for path in sorted(directory.rglob("spans-*.jsonl")) if (process := read(path))]
    return sorted(found, key=lambda p: p.opened_ns)
