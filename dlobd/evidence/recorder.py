"""Files of `dlobd.tracing` become processes with spans and instants.

A file may end anywhere: its writer may be dead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dlobd import spans as kinds
from dlobd.bundle import files, reading
from dlobd.layers import LAYERS, TENSORFLOW
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.schema import ClockAnchor, Process
from dlobd.spans import SpanKind, kind_of
from dlobd.tracing.clock_offset import Exchange
from dlobd.tracing.recorder import LOST_LINES, Cost

MAX_NS = 2**60
"""A monotonic clock counts from the start of its machine: 36 years are damage."""

_LOST = re.compile(LOST_LINES.format(r"(\d+)", r"(\d+)"))


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
    def kind(self) -> SpanKind | None:
        """The row of this span in `dlobd.spans`; None without a row."""
        found = kind_of(self.layer, self.name)
        return found[0] if found else None

    @property
    def is_step(self) -> bool:
        """True of a whole training step, the first or a later one."""
        return self.layer == TENSORFLOW and self.call is not None and self.rendezvous in ("", kinds.STEP_RENDEZVOUS)


@dataclass(frozen=True, slots=True)
class Instant:
    """A named point in time."""

    name: str
    at_ns: int
    attrs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Use:
    """The kernel's counters of a process from its start to `at_ns`; None for an unknown counter.

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
    """The records of one process."""

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
        """The number of the rank, from 0 for the chief; None for a process that does not train."""
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
    """Return the processes that train: the chief and the workers."""
    return [process for process in processes if process.rank is not None]


def read(path: Path) -> RecordedProcess | None:
    """Read the process that wrote `path`; None if its first line is not whole.

    A line that is cut, or that the recorder does not write, is counted as damaged and left out.
    """
    process: RecordedProcess | None = None
    open_spans: dict[int, RecordedSpan] = {}
    ids: set[int] = set()
    for text in reading.lines(path):
        line = reading.parse_json(text, Line)
        if isinstance(line, reading.Damaged):
            damaged = True
        elif line["k"] == "process":
            damaged = bool(reading.mismatch(line, ProcessLine))
            process = process if damaged else _process(line, path, process)
        else:
            damaged = bool(process and not _add(process, line, open_spans, ids))
        if process:
            process.lines += not damaged
            process.bad_lines += damaged
    if process:
        process.last_ns = max(process.last_ns, process.opened_ns)
        for span in open_spans.values():
            span.end_ns = process.last_ns
    return process


def _process(line: Mapping[str, Any], path: Path, before: RecordedProcess | None) -> RecordedProcess:
    """A process may come again, when it has become something else: the last line holds."""
    process = Process(line["host"], line["role"], line["index"], line["pid"], line["start_ns"])
    if before is None:
        return RecordedProcess(
            process, line["domain"], line["opened_ns"], line["forked"], path,
            parent=line.get("parent"),
        )  # fmt: skip
    before.process = process
    return before


def _add(process: RecordedProcess, line: Mapping[str, Any], open_spans: dict[int, RecordedSpan], ids: set[int]) -> bool:
    """Add a line to its process; return False for a damaged one. Kinds of later versions are ignored."""
    kind = line["k"]
    shape = LINES.get(kind)
    if shape is None:
        return True
    if reading.mismatch(line, shape):
        return False
    last_ns = 0
    if kind == "anchor":
        process.anchors.append(ClockAnchor(process.domain, line["monotonic_ns"], line["wall_ns"], line["error_ns"]))
        last_ns = line["monotonic_ns"]
    elif kind in ("s", "b"):
        last_ns = line["t"] + (line["d"] if kind == "s" else 0)
        wait = dict(line.get("w", {}))
        if line["i"] in ids or line["l"] not in LAYERS or wait.keys() - Wait.__annotations__.keys():
            return False
        if not line["t"] <= last_ns < MAX_NS:
            return False
        span = RecordedSpan(
            line["i"], line["p"], line["l"], line["n"], line["t"], last_ns, kind == "b",
            wait, line.get("a", {}), line.get("th", ""), *_rendezvous(wait),
        )  # fmt: skip
        if kind == "b":
            open_spans[span.id] = span
        ids.add(span.id)
        process.spans.append(span)
    elif kind == "e":
        last_ns = line["t"]
        ended = open_spans.get(line["i"])
        if ended and last_ns < ended.start_ns:
            return False
        if ended:
            del open_spans[line["i"]]
            ended.end_ns = last_ns
            ended.truncated = False
            ended.attrs = {**ended.attrs, **line.get("a", {})}
    elif kind == "x":
        pair = Exchange(line["sent_a_ns"], line["received_b_ns"], line["sent_b_ns"], line["received_a_ns"])
        last_ns = pair.received_a_ns
        if last_ns < pair.sent_a_ns or pair.sent_b_ns < pair.received_b_ns:
            return False  # a clock ran backwards
        process.exchanges.append((line["domain_b"], pair))
    elif kind == "i":
        last_ns = line["t"]
        attrs = line.get("a", {})
        if line["n"] == kinds.TRANSPORT and reading.mismatch(attrs, TransportEvidence):
            return False
        process.instants.append(Instant(line["n"], last_ns, attrs))
    elif kind == "u":
        last_ns = line["t"]
        main, threads, stalled = (
            tuple(pair) if pair else None for pair in map(line.get, ("main", "threads", "pressure"))
        )
        rest = (line["cpu"], line["read"], line["major"], line["block_io"])
        process.uses.append(Use(last_ns, main, threads, *rest, stalled))
    elif kind == "cost":
        # a sum; unknown members are dropped
        process.cost = Cost(**{field.name: line[field.name] for field in fields(Cost)})
        process.cost_at = process.lines
    process.last_ns = max(process.last_ns, last_ns)
    return True


def _rendezvous(wait: dict[str, Any]) -> tuple[str, int | None]:
    """Take kind and number of a collective out of a recorded wait."""
    kind, call = str(wait.pop("rendezvous", "")), wait.pop("call", None)
    return kind, None if call is None else int(call)


def read_all(directory: Path) -> list[RecordedProcess]:
    """Read all processes that wrote below `directory`, in the order in which they opened their files."""
    found = [process for path in sorted(directory.rglob("spans-*.jsonl")) if (process := read(path))]
    return sorted(found, key=lambda p: p.opened_ns)


def lost_lines(bundle: Path, processes: Iterable[RecordedProcess]) -> dict[tuple[str, int], int]:
    """Return (directory, PID) -> lines that a disk refused, by the recorders' counts and their messages on stderr."""
    counts = {(p.path.parent.name, p.process.pid): p.cost.lost_lines for p in processes if p.cost}
    for path in (bundle / files.DRIVER_STDERR, *sorted((bundle / files.CONTAINER_LOGS).glob("*/stderr"))):
        directory = "driver" if path.name == "driver.stderr" else path.parent.name
        for count, pid in _LOST.findall(reading.text(path)):
            key = (directory, int(pid))
            counts[key] = max(counts.get(key, 0), int(count))
    return counts


# ---- the lines of a span file


class Line(TypedDict):
    """Any line: its kind."""

    k: str


class ProcessLine(Line):
    """The first line, and one for each change of the process."""

    host: str
    role: str
    index: int
    pid: int
    start_ns: int | None
    domain: str
    opened_ns: int
    forked: bool
    schema: NotRequired[int]
    parent: NotRequired[int | None]


class AnchorLine(Line):
    """A reading of both clocks."""

    monotonic_ns: int
    wall_ns: int
    error_ns: int


class Wait(TypedDict, total=False):
    """The target of a wait; see `dlobd.tracing.recorder.Recorder.span`."""

    waits_for: list[str]
    released_ns: int | None
    cause: str
    cause_period_ns: int | None
    rendezvous: str
    call: int | None


class Attrs(TypedDict, total=False):
    """Attributes of spans and instants, as far as they are read."""

    address: str
    blocks: int
    by: str
    bytes: int
    call: int
    capacity_bytes: int
    cause: str
    epoch: int
    how: str
    index: int
    items: int
    join_poll_ns: int
    loss: float
    master: str
    nodes: int
    ns: int
    own_ns: int
    package: str
    path: str
    pid: int
    purpose: str
    rank: int
    right: int
    role: str
    samples: int
    slots: int
    task_attempt: int | None
    transfers: list[tuple[int | str, int | str, int, int]]


class BeginLine(Line):
    """The start of a span."""

    i: int
    p: int
    l: str  # noqa: E741
    n: str
    t: int
    th: NotRequired[str]
    w: NotRequired[Wait]
    a: NotRequired[Attrs]


class SpanLine(BeginLine):
    """A whole span."""

    d: int


class EndLine(Line):
    """The end of a span."""

    i: int
    t: int
    a: NotRequired[Attrs]


class ExchangeLine(Line):
    """A message and its answer, by the clocks of both ends."""

    domain_b: str
    sent_a_ns: int
    received_b_ns: int
    sent_b_ns: int
    received_a_ns: int


class InstantLine(Line):
    """A named point in time."""

    n: str
    t: int
    a: NotRequired[Attrs]


class UseLine(Line):
    """Counters of the kernel; see `Use`."""

    t: int
    main: NotRequired[tuple[int, int] | None]
    threads: NotRequired[tuple[int, int] | None]
    pressure: NotRequired[tuple[int, int] | None]
    cpu: int | None
    read: int | None
    major: int | None
    block_io: int | None


LINES: dict[str, Any] = {
    "anchor": AnchorLine,
    "b": BeginLine,
    "s": SpanLine,
    "e": EndLine,
    "x": ExchangeLine,
    "i": InstantLine,
    "u": UseLine,
    "cost": reading.Members({field.name: int for field in fields(Cost)}),
}
"""Kind of a line -> its members."""
