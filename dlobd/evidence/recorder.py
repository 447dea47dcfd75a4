"""Reads the span files of `dlobd.tracing` into processes with spans and instants. A file may be truncated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd.bundle import files, reading
from dlobd.bundle.reading import Members
from dlobd.layers import LAYERS, TENSORFLOW
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.schema import ClockAnchor, Process
from dlobd.spans import Details, JsonMap, SpanKind, kind_of
from dlobd.tracing.clock_offset import Exchange
from dlobd.tracing.recorder import CHILD as CHILD
from dlobd.tracing.recorder import LOST_LINES, Cost

TRAINING = ("chief", "master", "worker")
"""Roles of nodes that end by themselves."""

STOPPED = ("ps", "evaluator")
"""Roles of nodes that serve until TensorFlowOnSpark kills them, so that their last spans have no end."""

MAX_NS = 2**60
"""Largest valid time, 36 years: a monotonic clock counts from the boot of its machine."""

_LOST = re.compile(LOST_LINES.format(r"(\d+)", r"(\d+)"))


@dataclass(slots=True)
class RecordedSpan:
    """A span as its process recorded it, before `dlobd.timeline` places it in a lane."""

    id: int
    parent: int
    layer: str
    name: str
    start_ns: int
    end_ns: int  # without a recorded end, the last evidence of the process
    truncated: bool
    wait: Details
    attrs: JsonMap
    thread: str
    rendezvous: str = ""  # kind of its collective, if any
    call: int | None = None  # number of the collective, or of the step

    @property
    def kind(self) -> SpanKind | None:
        """The row of this span in `dlobd.spans`; None without a row."""
        found = kind_of(self.layer, self.name)
        return found[0] if found else None

    @property
    def is_step(self) -> bool:
        """True for a whole training step, the first step included."""
        return self.layer == TENSORFLOW and self.call is not None and self.rendezvous in ("", kinds.STEP_RENDEZVOUS)

    @property
    def is_divided(self) -> bool:
        """True for a task in a Python worker with the sums of its parts."""
        parts = [self.attrs.get(name, -1) for name in ("read_ns", "serialise_ns", "write_ns")]
        parts.append(self.attrs.get("function_ns", 0))
        return {"evaluation", "how", "ns"} <= self.attrs.keys() and min(parts) >= 0 and sum(parts) <= self.attrs["ns"]

    @property
    def is_main(self) -> bool:
        """True for a main function of a rank, which records role and index of its node."""
        return {"role", "index"} <= self.attrs.keys()


@dataclass(frozen=True, slots=True)
class Instant:
    """A named point in time."""

    name: str
    at_ns: int
    attrs: JsonMap


@dataclass(frozen=True, slots=True)
class Use:
    """The kernel's counters of a process from its start to `at_ns`; None for an unknown counter."""

    at_ns: int
    main: tuple[int, int] | None  # nanoseconds of the main thread: on a core, and waiting for a core
    threads: tuple[int, int] | None  # as `main`, for all observed threads
    cpu_ns: int | None  # includes ended threads
    read_bytes: int | None
    major_faults: int | None
    block_io_ns: int | None
    pressure: tuple[int, int] | None  # nanoseconds in which some task of the machine waited for a core, and for a disk


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
    exchanges: list[tuple[str, Exchange]] = field(default_factory=list)  # each with the other clock domain
    uses: list[Use] = field(default_factory=list)
    lines: int = 0  # without damaged lines
    bad_lines: int = 0
    cost: Cost | None = None  # from its last cost line; None without one
    cost_at: int = 0  # valid lines before that line
    parent: int | None = None  # PID of the process that started it

    @property
    def is_child(self) -> bool:
        """True for a process that user code forked. It has no part in the breakdown, and may end in any way."""
        return self.process.role == CHILD

    @property
    def rank(self) -> int | None:
        """The number of the rank, from 0 for the chief; None for a process that does not train."""
        return {"chief": self.process.index, "worker": self.process.index + 1}.get(self.process.role)

    def instant(self, name: str) -> Instant | None:
        """Return the first instant of that name; None without one."""
        return next((i for i in self.instants if i.name == name), None)

    def named(self, name: str) -> list[RecordedSpan]:
        """Return all spans of that name, in the order of their start."""
        return [span for span in self.spans if span.name == name]

    def steps(self) -> list[RecordedSpan]:
        """Return all training steps, in the order of their start."""
        return [span for span in self.spans if span.is_step]


def trainers(processes: Iterable[RecordedProcess]) -> list[RecordedProcess]:
    """Return the processes that train: the chief and the workers."""
    return [process for process in processes if process.rank is not None]


def read(path: Path) -> RecordedProcess | None:
    """Read a span file; None if its first line is damaged. Counts and ignores other damaged lines."""
    process: RecordedProcess | None = None
    open_spans: dict[int, RecordedSpan] = {}
    ids: set[int] = set()
    for text in reading.lines(path):
        line = reading.parse_json(text, JsonMap)
        if isinstance(line, reading.Damaged) or not isinstance(line.get("k"), str):
            damaged = True
        elif line["k"] == "process":
            damaged = bool(reading.mismatch(line, _PROCESS))
            if not damaged:  # a process writes it again when its role changes
                who = Process(line["host"], line["role"], line["index"], line["pid"], line["start_ns"])
                process = process or RecordedProcess(who, line["domain"], line["opened_ns"], line["forked"], path)
                process.process, process.parent = who, process.parent or line.get("parent")
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


def _add(process: RecordedProcess, line: JsonMap, open_spans: dict[int, RecordedSpan], ids: set[int]) -> bool:
    """Add a line to its process; return False for a damaged line. Ignores kinds of lines of later versions."""
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
        wait: Any = line.get("w", {})
        valid = line["l"] in LAYERS and line["t"] <= last_ns < MAX_NS and wait.keys() <= _WAIT.keys()
        if line["i"] in ids or not valid:
            return False
        collective, call = wait.pop("rendezvous", ""), wait.pop("call", None)
        names = line["i"], line["p"], line["l"], line["n"]
        attrs, thread = line.get("a", {}), line.get("th", "")
        span = RecordedSpan(*names, line["t"], last_ns, kind == "b", wait, attrs, thread, collective, call)
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
            ended.end_ns, ended.truncated, ended.attrs = last_ns, False, {**ended.attrs, **line.get("a", {})}
    elif kind == "x":
        pair = Exchange(**{field.name: line[field.name] for field in fields(Exchange)})
        last_ns = pair.received_a_ns
        if last_ns < pair.sent_a_ns or pair.sent_b_ns < pair.received_b_ns:
            return False  # a clock ran backwards
        process.exchanges.append((line["domain_b"], pair))
    elif kind == "i":
        last_ns = line["t"]
        attrs = line.get("a", {})
        known = kinds.INSTANTS.get(line["n"])
        if known and not known.attributes <= attrs.keys():
            return False
        if known is kinds.TRANSPORT and reading.mismatch(attrs, TransportEvidence):
            return False
        process.instants.append(Instant(line["n"], last_ns, attrs))
    elif kind == "u":
        last_ns = line["t"]
        pairs = (line.get(name) for name in ("main", "threads", "pressure"))
        main, threads, stalled = (tuple(pair) if pair else None for pair in pairs)
        rest = (line["cpu"], line["read"], line["major"], line["block_io"])
        process.uses.append(Use(last_ns, main, threads, *rest, stalled))
    elif kind == "cost":
        # later versions may add members
        process.cost = Cost(**{field.name: line[field.name] for field in fields(Cost)})
        process.cost_at = process.lines
    process.last_ns = max(process.last_ns, last_ns)
    return True


def read_files(directory: Path) -> dict[Path, RecordedProcess | None]:
    """Read all span files below `directory`."""
    return {path: read(path) for path in sorted(directory.rglob("spans-*.jsonl"))}


def processes(files: Mapping[Path, RecordedProcess | None]) -> list[RecordedProcess]:
    """Return the processes of span files, in the order in which they opened their files."""
    return sorted(filter(None, files.values()), key=lambda process: process.opened_ns)


def lost_lines(bundle: Path, processes: Iterable[RecordedProcess]) -> dict[tuple[str, int], int]:
    """Return the number of lost lines by directory and PID, from the recorders' counts and messages on stderr."""
    counts = {(p.path.parent.name, p.process.pid): p.cost.lost_lines for p in processes if p.cost}
    for path in (bundle / files.DRIVER_STDERR, *sorted((bundle / files.CONTAINER_LOGS).glob("*/stderr"))):
        directory = "driver" if path.name == "driver.stderr" else path.parent.name
        for count, pid in _LOST.findall(reading.text(path)):
            key = (directory, int(pid))
            counts[key] = max(counts.get(key, 0), int(count))
    return counts


def _ints(names: str) -> dict[str, type]:
    return dict.fromkeys(names.split(), int)


_PROCESS = Members(
    {"host": str, "role": str, "start_ns": int | None, "domain": str, "forked": bool, **_ints("index pid opened_ns")},
    {"schema": int, "parent": int | None},
)
_WAIT: dict[str, object] = {"waits_for": list[str], "cause": str, "rendezvous": str, "call": int}
_WAIT |= {"released_ns": int | None, "cause_period_ns": int}
_ATTRS = Members(
    optional={
        **dict.fromkeys(["address", "by", "cause", "how", "master", "package", "path", "purpose", "role"], str),
        **dict.fromkeys(["application_id", "evaluation"], str),
        **_ints("blocks bytes call capacity_bytes code epoch index items join_poll_ns nodes ns own_ns pid"),
        **_ints("function rank registered right samples slots"),
        **_ints("function_ns read_ns serialise_ns write_ns"),
        "loss": float,
        "sampled": bool,
        "traced": bool,
        "trains": bool | None,
        **dict.fromkeys(["executors", "stage", "steps", "task_attempt"], int | None),
        "transfers": list[tuple[int | str, int | str, int, int]],
    }
)
_BEGIN = {"i": int, "p": int, "l": str, "n": str, "t": int}
_MORE = {"th": str, "w": Members(optional=_WAIT), "a": _ATTRS}
_PAIR = tuple[int, int] | None

LINES: dict[str, Members] = {
    "anchor": Members(_ints("monotonic_ns wall_ns error_ns")),
    "b": Members(_BEGIN, _MORE),
    "s": Members({**_BEGIN, "d": int}, _MORE),
    "e": Members({"i": int, "t": int}, {"a": _ATTRS}),
    "x": Members({"domain_b": str, **{field.name: int for field in fields(Exchange)}}),
    "i": Members({"n": str, "t": int}, {"a": _ATTRS}),
    "u": Members(
        {"t": int, **dict.fromkeys(("cpu", "read", "major", "block_io"), int | None)},
        dict.fromkeys(("main", "threads", "pressure"), _PAIR),
    ),
    "cost": Members({field.name: int for field in fields(Cost)}),
}
"""Kind of a line -> the JSON shape of its members."""
