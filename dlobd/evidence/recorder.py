"""Reads the span files of `dlobd.tracing` into processes with spans and instants. A file may be truncated.

Lines of ended spans are by far the most: msgspec checks their types. `dlobd.bundle.reading` checks all other lines.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from dlobd import spans as kinds
from dlobd.bundle import files, reading
from dlobd.bundle.reading import Damaged, Members
from dlobd.columns import NONE, Codes, Ints, Numbers
from dlobd.errors import SetupError
from dlobd.evidence.recorded_spans import RecordedSpan as RecordedSpan
from dlobd.evidence.recorded_spans import RecordedSpans, Wait
from dlobd.layers import LAYERS
from dlobd.memory import available_memory_bytes
from dlobd.network.verdict.evidence import TransportEvidence
from dlobd.schema import ClockAnchor, Process
from dlobd.spans import JsonMap
from dlobd.tracing.clock_offset import Exchange
from dlobd.tracing.recorder import CHILD as CHILD
from dlobd.tracing.recorder import LOST_LINES, Cost

TRAINING = ("chief", "master", "worker")
"""Roles of nodes that end by themselves."""

MEMORY_PER_BYTE = 8
"""Memory for the record, the page or an export of a run, per byte of its span files. One million spans of 116 bytes
need 0.9 GB."""

STOPPED = ("ps", "evaluator")
"""Roles of nodes that serve until TensorFlowOnSpark kills them, so that their last spans have no end."""

_LOST = re.compile(LOST_LINES.format(r"(\d+)", r"(\d+)"))


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


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum over the spans of a kind that a process left out."""

    spans: int
    ns: int
    bytes: int


@dataclass(slots=True)
class RecordedProcess:
    """The records of one process. `sums`: by layer and name, of the spans inside summed steps."""

    process: Process
    domain: str
    opened_ns: int
    forked: bool
    path: Path
    last_ns: int = 0
    spans: RecordedSpans = field(default_factory=lambda: RecordedSpans.of(()))
    instants: list[Instant] = field(default_factory=list)
    anchors: list[ClockAnchor] = field(default_factory=list)
    exchanges: list[tuple[str, Exchange]] = field(default_factory=list)  # each with the other clock domain
    uses: list[Use] = field(default_factory=list)
    sums: dict[tuple[str, str], Sum] = field(default_factory=dict)
    bytes: int = 0  # of all lines, with their line breaks
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

    def named(self, *names: str) -> RecordedSpans:
        """Return all spans with one of these names, in the order of the file."""
        return self.spans.named(*names)

    @property
    def left_out(self) -> tuple[int, int]:
        """Number of left-out spans: by the steps, and by the sums. They differ if lines are lost."""
        return int(self.spans.values("left_out").sum()), sum(one.spans for one in self.sums.values())

    def steps(self) -> RecordedSpans:
        """Return all training steps, in the order of the file."""
        return self.spans.where(self.spans.is_step)


def trainers(processes: Iterable[RecordedProcess]) -> list[RecordedProcess]:
    """Return the processes that train: the chief and the workers."""
    return [process for process in processes if process.rank is not None]


def read(path: Path) -> RecordedProcess | None:
    """Read a span file; None if its first line is damaged. Counts and ignores other damaged lines."""
    file = _File(path)
    for lines in reading.blocks(path):
        file.add(lines)
    return file.read()


MAX_NS = 2**60
"""Largest valid time, 36 years: a monotonic clock counts from the boot of its machine."""

ENDED, MARKS = b'{"k":"s",', (b'{"k":"b",', b'{"k":"e",')
"""First bytes of lines of ended spans, and of begins and ends."""

NO_ATTRIBUTES = Raw(b"{}")

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class WaitLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Member `w` of a span line: fields of `Details`, and of a collective."""

    waits_for: list[str] | UnsetType = UNSET
    released_ns: Int | UnsetType | None = UNSET
    cause: str | UnsetType = UNSET
    cause_period_ns: Int | UnsetType = UNSET
    rendezvous: str = ""
    call: Annotated[int, Meta(ge=0, le=2**63 - 1)] = NONE


class BeginLine(msgspec.Struct, gc=False, tag_field="k", tag="b"):
    """Line of the begin of a span: ID, parent, layer, name, start, wait, attributes and thread."""

    i: Int
    p: Int
    l: str  # noqa: E741
    n: str
    t: Annotated[int, Meta(ge=-MAX_NS, le=MAX_NS)]
    w: WaitLine | UnsetType = UNSET
    a: Raw = NO_ATTRIBUTES
    th: str = ""


class SpanLine(BeginLine, tag="s", kw_only=True):
    """Line of an ended span, with its duration."""

    d: Annotated[int, Meta(ge=0, le=MAX_NS)]


class EndLine(msgspec.Struct, gc=False, tag_field="k", tag="e"):
    """Line of the end of a span: ID, time, and further attributes."""

    i: Int
    t: Annotated[int, Meta(ge=-MAX_NS, le=MAX_NS)]
    a: Raw = NO_ATTRIBUTES


_SPAN, _ANY = msgspec.json.Decoder(SpanLine), msgspec.json.Decoder(SpanLine | BeginLine | EndLine)


def decoded_line(text: bytes) -> SpanLine | BeginLine | EndLine | None:
    """Return a line of a span; None if it is damaged."""
    line: SpanLine | BeginLine | EndLine
    try:
        line = _ANY.decode(text)
    except (ValueError, RecursionError):
        # the decoder refuses half a surrogate pair, which the name of a file may have
        value = reading.parse_json(text.decode(errors="replace"), JsonMap, infinite=True)
        if isinstance(value, Damaged):
            return None
        attrs = json.dumps(value.pop("a", {}))
        try:
            line = msgspec.convert(value, SpanLine | BeginLine | EndLine)
        except ValueError:
            return None
        line.a = Raw(attrs.encode())
    return line


def joined(some: Raw, more: Raw) -> Raw:
    """Return the attributes of the begin and the end of a span; those of the end have precedence."""
    parts = [members for raw in (some, more) if (members := bytes(raw)[1:-1].strip())]
    return Raw(b"{" + b",".join(parts) + b"}")


@dataclass
class SpanLines:
    """Spans of a file, while it is read."""

    _kinds: Numbers[tuple[str, str]] = field(default_factory=Numbers)
    _threads: Numbers[str] = field(default_factory=Numbers)
    _waits: Numbers[tuple[Any, ...]] = field(default_factory=lambda: Numbers({(): 0}))
    _attrs: Numbers[bytes] = field(default_factory=lambda: Numbers({bytes(NO_ATTRIBUTES): 0}))
    _blocks: list[tuple[list[Ints], list[Codes]]] = field(default_factory=list)
    last_ns: int = 0  # end of the last span

    def decode(self, lines: Sequence[bytes], numbers: Sequence[int]) -> list[int]:
        """Add lines of ended spans, with their numbers in the file; return the numbers of damaged lines."""
        try:
            self.add(_SPAN.decode_lines(b"\n".join(lines)), numbers)
        except (ValueError, RecursionError):  # one of them
            found = {number: decoded_line(text) for text, number in zip(lines, numbers, strict=True)}
            valid = {number: line for number, line in found.items() if isinstance(line, SpanLine)}
            self.add([*valid.values()], [*valid])
            return [number for number in found if number not in valid]
        return []

    def add(self, lines: Sequence[SpanLine], numbers: Sequence[int]) -> None:
        """Add spans, with the numbers of their lines."""
        kinds, threads, waits, attrs = self._kinds, self._threads, self._waits, self._attrs
        integers = [
            [line.i for line in lines],
            [line.p for line in lines],
            [line.t for line in lines],
            [line.t + line.d for line in lines],
            [NONE if line.w is UNSET else line.w.call for line in lines],
            numbers,
        ]
        codes = [
            [kinds[line.l, line.n] for line in lines],
            [threads[line.th] for line in lines],
            [0 if line.w is UNSET else waits[_key(line.w)] for line in lines],
            [0 if line.a is NO_ATTRIBUTES else attrs[bytes(line.a)] for line in lines],
        ]
        self.last_ns = max(self.last_ns, max(integers[3], default=0))
        self._blocks.append(([np.array(c, np.int64) for c in integers], [np.array(c, np.int32) for c in codes]))

    def columns(self, open_: Sequence[int]) -> tuple[RecordedSpans, list[int]]:
        """Return the valid spans in the order of the file, and the numbers of the lines of the others.

        Args:
            open_: numbers of the lines of spans without an end.
        """
        self.add([], [])
        integers, codes = zip(*self._blocks, strict=True)
        id_, parent, start_ns, end_ns, call, number = (np.concatenate(column) for column in zip(*integers, strict=True))
        kind, thread, wait, attrs = (np.concatenate(column) for column in zip(*codes, strict=True))
        parsed = [_attributes(raw) for raw in self._attrs]
        valid = np.array([layer in LAYERS for layer, _ in self._kinds], np.bool_)[kind] & (end_ns < MAX_NS)
        valid &= ~np.array([isinstance(one, Damaged) for one in parsed], np.bool_)[attrs]
        order = np.lexsort((number, id_))
        again = order[1:][id_[order[1:]] == id_[order[:-1]]]
        valid[again] = False
        rows = np.argsort(number, kind="stable")
        rows = rows[valid[rows]]
        columns = id_, parent, start_ns, end_ns, call, kind, thread, wait, attrs
        found = RecordedSpans(
            *columns,
            truncated=np.isin(number, np.array(open_, np.int64)),
            kinds=list(self._kinds),
            threads=list(self._threads),
            waits=[_wait(key) for key in self._waits],
            attributes=[{} if isinstance(one, Damaged) else one for one in parsed],
        )
        return found.where(rows), number[~valid].tolist()


def _attributes(raw: bytes) -> Any:
    try:
        value = msgspec.json.decode(raw)
        msgspec.convert(value, _ATTRS)
    except (ValueError, RecursionError):  # damaged, or the infinite loss of a training that diverges
        return reading.parse_json(raw, _ATTRS, infinite=True)
    return value


def _key(wait: WaitLine) -> tuple[Any, ...]:
    lanes = wait.waits_for
    return UNSET if lanes is UNSET else (*lanes,), wait.released_ns, wait.cause, wait.cause_period_ns, wait.rendezvous


def _wait(key: tuple[Any, ...]) -> Wait:
    if not key:
        return {}, ""
    names = ("waits_for", "released_ns", "cause", "cause_period_ns")
    details: Any = {name: value for name, value in zip(names, key, strict=False) if value is not UNSET}
    return details, key[-1]


class _File:
    """A span file while it is read. Lines have numbers from 0."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: RecordedProcess | None = None
        self._lines = 0
        self._bytes = 0
        self._first = 0  # number of the process's line
        self._cost_line = 0
        self._bad = self._bad_before_cost = 0
        self._bad_here: list[int] = []  # numbers of the damaged lines among those that are added
        self._spans = SpanLines()
        self._begun: dict[int, tuple[int, SpanLine]] = {}
        self._open: dict[int, SpanLine] = {}

    def add(self, lines: Sequence[bytes]) -> None:
        """Add the next lines."""
        spans: list[int] = []
        for place, line in enumerate(lines):
            if self._process and line.startswith(ENDED):
                spans.append(place)
            elif line.startswith(b"{"):
                self._other(line, self._lines + place)
            elif self._process:
                self._bad_here.append(self._lines + place)
        numbers = [self._lines + place for place in spans]
        self._bad_here += self._spans.decode([lines[place] for place in spans], numbers)
        if self._cost_line >= self._lines:
            self._bad_before_cost = self._bad + sum(number < self._cost_line for number in self._bad_here)
        self._bad += len(self._bad_here)
        self._bad_here.clear()
        self._lines += len(lines)
        self._bytes += sum(map(len, lines)) + len(lines)

    def read(self) -> RecordedProcess | None:
        """Return the process with all that was added."""
        process = self._process
        if process is None:
            return None
        ends_ns = process.last_ns, process.opened_ns, self._spans.last_ns
        process.last_ns = max(*ends_ns, *(span.t for _, span in self._begun.values()))
        for span in self._open.values():
            span.d = process.last_ns - span.t
        begun = self._begun.values()
        self._spans.add([span for _, span in begun], [number for number, _ in begun])
        process.spans, bad = self._spans.columns([number for number, span in begun if span.i in self._open])
        process.bytes = self._bytes
        process.bad_lines = self._bad + len(bad)
        process.lines = self._lines - self._first - process.bad_lines
        before = self._bad_before_cost + sum(number < self._cost_line for number in bad)
        process.cost_at = self._cost_line - self._first - before
        return process

    def _other(self, text: bytes, number: int) -> None:
        if self._process and text.startswith(MARKS):
            if not self._mark(text, number):
                self._bad_here.append(number)
            return
        line = reading.parse_json(text.decode(errors="replace"), JsonMap, infinite=True)
        if isinstance(line, Damaged) or not isinstance(line.get("k"), str):
            valid = False
        elif line["k"] == "process":
            valid = not reading.mismatch(line, _PROCESS)
            if valid:  # a process writes it again when its role changes
                who = Process(line["host"], line["role"], line["index"], line["pid"], line["start_ns"])
                if self._process is None:
                    self._process = RecordedProcess(who, line["domain"], line["opened_ns"], line["forked"], self._path)
                    self._first = number
                self._process.process, self._process.parent = who, self._process.parent or line.get("parent")
        else:
            process, is_span = self._process, line["k"] in ("s", "b", "e")
            valid = not process or (self._mark(text, number) if is_span else self._add(process, line, number))
        if self._process and not valid:
            self._bad_here.append(number)

    def _mark(self, text: bytes, number: int) -> bool:
        """Add a begin or an end of a span, or a whole span; return False for a damaged line."""
        line = decoded_line(text)
        if line is None:
            return False
        last_ns = line.t
        if isinstance(line, SpanLine):
            self._spans.add([line], [number])
        elif isinstance(line, BeginLine):
            if line.i in self._begun:
                return False
            span = SpanLine(line.i, line.p, line.l, line.n, line.t, line.w, line.a, line.th, d=0)
            self._begun[span.i], self._open[span.i] = (number, span), span
        elif ended := self._open.get(line.i):
            if line.t < ended.t:
                return False
            del self._open[line.i]
            ended.d, ended.a = line.t - ended.t, joined(ended.a, line.a)
        assert self._process is not None
        self._process.last_ns = max(self._process.last_ns, last_ns)
        return True

    def _add(self, process: RecordedProcess, line: JsonMap, number: int) -> bool:
        """Add a line to its process; return False for a damaged line. Ignores kinds of lines of later versions."""
        kind = line["k"]
        shape = LINES.get(kind)
        if shape is None:
            return True
        if reading.mismatch(line, shape):
            return False
        last_ns = 0
        if kind == "anchor":
            anchor = line["monotonic_ns"], line["wall_ns"], line["error_ns"]
            process.anchors.append(ClockAnchor(process.domain, *anchor))
            last_ns = line["monotonic_ns"]
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
        elif kind == "sum":
            numbers = Sum(line["spans"], line["ns"], line["bytes"])
            if min(numbers.spans, numbers.ns, numbers.bytes) < 0:
                return False
            process.sums[line["l"], line["n"]] = numbers
        elif kind == "cost":
            # later versions may add members
            process.cost = Cost(**{field.name: line[field.name] for field in fields(Cost)})
            self._cost_line = number
        process.last_ns = max(process.last_ns, last_ns)
        return True


def read_files(directory: Path) -> dict[Path, RecordedProcess | None]:
    """Read all span files below `directory`. Raises SetupError if the available memory does not suffice."""
    paths = _paths(directory)
    needed, available = MEMORY_PER_BYTE * size_bytes(directory), available_memory_bytes()
    if needed > available:
        size = f"{directory} has spans of {size_bytes(directory) / 1e6:.0f} MB"
        what = f"{size}; they need about {needed / 1e6:.0f} MB of memory, and {available / 1e6:.0f} MB are available."
        raise SetupError(what, "free memory, or read a copy of the bundle on a larger machine")
    return {path: read(path) for path in paths}


def size_bytes(directory: Path) -> int:
    """Return the size of the span files below `directory`."""
    return sum(reading.size(path) or 0 for path in _paths(directory))


def _paths(directory: Path) -> list[Path]:
    """Return all span files; a file that is also there compressed is left from its compression."""
    paths = sorted(directory.rglob("spans-*.jsonl*"))
    return [path for path in paths if path.with_name(f"{path.name}.gz") not in paths]


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


def _ints(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), Int)


_PROCESS = Members(
    {"host": str, "role": str, "start_ns": int | None, "domain": str, "forked": bool, **_ints("index pid opened_ns")},
    {"schema": int, "parent": int | None},
)
_ATTRS = Members(
    optional={
        **dict.fromkeys(["address", "by", "cause", "how", "master", "package", "path", "purpose", "role"], str),
        **dict.fromkeys(["application_id", "evaluation"], str),
        **_ints("blocks bytes call capacity_bytes code epoch index items join_poll_ns nodes ns own_ns pid"),
        **_ints("function left_out rank registered right samples slots"),
        **_ints("function_ns read_ns serialise_ns write_ns"),
        "loss": float,
        "sampled": bool,
        "traced": bool,
        "trains": bool | None,
        **dict.fromkeys(["executors", "stage", "steps", "task_attempt"], int | None),
        "transfers": list[tuple[int | str, int | str, int, int]],
    }
)
_PAIR = tuple[int, int] | None

LINES: dict[str, Members] = {
    "anchor": Members(_ints("monotonic_ns wall_ns error_ns")),
    "x": Members({"domain_b": str, **{field.name: int for field in fields(Exchange)}}),
    "i": Members({"n": str, "t": int}, {"a": _ATTRS}),
    "u": Members(
        {"t": int, **dict.fromkeys(("cpu", "read", "major", "block_io"), int | None)},
        dict.fromkeys(("main", "threads", "pressure"), _PAIR),
    ),
    "sum": Members({"l": str, "n": str, **{field.name: int for field in fields(Sum)}}),
    "cost": Members({field.name: int for field in fields(Cost)}),
}
"""Kind of a line -> the JSON shape of its members; `SpanLine` and others have the lines of spans."""
