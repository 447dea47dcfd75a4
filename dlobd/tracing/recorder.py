"""Recorder: `with span(kind)` writes an interval to the crash-proof file of this process.

A file is append-only JSON lines; `dlobd.evidence.recorder.LINES` has their members. Lines are buffered, and written at
least every `FLUSH_S` and whenever the outermost span of a thread ends; a written line survives `kill -9`. A span that
began and ended since the last write is one line, `s`. A span that is open at a write is a begin line, `b`, and an end
line, `e`, later, so a killed process leaves the begin lines of its open spans. After a fork the child opens its own
file with an empty stack and a role of its own; its parent's open spans stay with its parent. Span IDs are unique in a
file, and a file's process by its PID and the time of its opening.

In the measured thread a span is one object in a queue; the text is made when it is written. A thread that fills the
queue writes it, so that the memory does not grow. The recorder counts its output, the time of writing and the lines
that a disk refused, in `cost` lines: sums since the file was opened.
"""

from __future__ import annotations

import _thread
import fcntl
import itertools
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from pathlib import Path
from threading import get_ident
from types import TracebackType

from dlobd.schema import SCHEMA_VERSION
from dlobd.spans import Fields, InstantKind, SpanKind
from dlobd.tracing import clock, clock_sync, process_use
from dlobd.tracing.summed_steps import EVERY, LeftOut, Sum, SummedSteps

FLUSH_S = 0.5
"""Longest time from recording a line to writing it."""

ANCHOR_S = 10.0
"""Interval between readings of both clocks: they reveal a step of the wall clock."""

FIRST_EXCHANGE_S, EXCHANGE_S = 1.0, 10.0
"""First and longest interval between clock-offset exchanges with the driver; each interval doubles the previous one."""

LOST_LINES = "dlobd: {} lines of spans of process {} are lost"
"""Message on stderr if the disk refuses lines, with the number of lines and the PID."""

CHILD = "child"
"""Role of a process that user code forked, until the process calls `identify`: a child of a rank is no rank."""

MOST_QUEUED = 10_000
"""Longest queue, about 8 MB; while it is written, a second queue may fill."""

SUMS_S = 1.0
"""Shortest interval between two `cost` lines, and between two `u` (process use) lines; the last flush writes both."""


@dataclass(slots=True)
class Cost:
    """Cost of recording in one process since its file was opened."""

    spans: int = 0  # spans that were begun and written, including spans that the disk refused
    lines: int = 0  # lines in the file; their size is `bytes`
    bytes: int = 0
    flushes: int = 0  # writes; `wall_ns` and `cpu_ns` are their times, with the encoding
    wall_ns: int = 0
    cpu_ns: int = 0
    lost_lines: int = 0  # lines that the disk refused
    left_out: int = 0  # intervals that were too short for a span, and spans inside summed steps


class OpenSpan:
    """Span until it is written. It uses private members of the recorder, because each call here adds to a span's
    cost."""

    __slots__ = (
        "_attrs",
        "_end_ns",
        "_name",
        "_noted",
        "_parent",
        "_recorder",
        "_start_ns",
        "_thread",
        "id",
        "kind",
        "stack",
        "sums",
        "wait",
        "written",
    )

    id: int
    stack: list[OpenSpan]

    def __init__(
        self, recorder: Recorder, kind: SpanKind, wait: Fields | None, detail: str, attrs: dict[str, object]
    ) -> None:
        self._recorder = recorder
        self.kind = kind
        self._name = kind.text(detail) if detail else kind
        self.wait = {**kind.wait, **wait} if wait else kind.wait
        self._attrs = attrs
        self._noted: dict[str, object] | None = None
        self._end_ns = 0
        self.written = ""  # kind of its last line
        self.sums: list[Sum] | None = None  # at the end of a summed step

    def note(self, **attrs: object) -> None:
        """Add attributes that are known only at the end of the span, such as a number of bytes."""
        self._noted = {**self._noted, **attrs} if self._noted else attrs

    def __enter__(self) -> OpenSpan:
        recorder = self._recorder
        if get_ident() == recorder._main:
            stack, self._thread = recorder._main_stack, ""
        else:
            stack, self._thread = recorder._of_thread()
        self.stack = stack
        self._parent = stack[-1].id if stack else 0
        self.id = next(recorder._ids)
        stack.append(self)
        if recorder.summed is not None:
            recorder.summed.enter(self)
        self._start_ns = recorder._now()
        recorder._queue.append(self)
        if recorder._thread_due:
            recorder._start_thread()
        if len(recorder._queue) > MOST_QUEUED:
            recorder.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            self.note(error=kind.__name__)
        recorder, stack = self._recorder, self.stack
        end_ns = recorder._now()
        if stack and stack[-1] is self:
            stack.pop()
        elif self in stack:
            del stack[stack.index(self) :]
        if recorder.summed is not None:
            recorder.summed.leave(self)
        self._end_ns = end_ns
        if self.written:  # in this order; see `line`
            recorder._queue.append(self)
        if not stack:
            # PySpark's workers and multiprocessing's children leave by os._exit, which runs no exit handler
            recorder.flush()

    def line(self) -> str:
        """Encode the span without a line break: begin and end, the begin alone of an open span, or the end alone after
        its begin; empty if both are written."""
        if self.written == "b":
            self.written = "e"
            noted = f',"a":{_members(self._noted)}' if self._noted else ""
            return f'{{"k":"e","i":{self.id},"t":{self._end_ns}{noted}}}'
        if self.written:
            return ""
        # This sets `written` before it reads `_end_ns`, and `__exit__` sets `_end_ns` before it reads `written`: the
        # end is written in any interleaving of two threads.
        self.written = "b"
        end_ns = self._end_ns
        if end_ns:
            self.written = "s"
        names = _layer_and_name(self.kind.layer, self._name)
        text = f'{{"k":"{self.written}","i":{self.id},"p":{self._parent},{names},"t":{self._start_ns}'
        if end_ns:
            text += f',"d":{end_ns - self._start_ns}'
        if self.wait:
            text += f',"w":{_members(self.wait)}'
        attrs = self._attrs
        if end_ns and self._noted:
            attrs = {**attrs, **self._noted} if attrs else self._noted
        if attrs:
            text += f',"a":{_members(attrs)}'
        if self._thread:
            text += f',"th":{_quoted(self._thread)}'
        return text + "}"


class Recorder:
    """Writer of the spans of one process. `threaded`: False for a process that must fork without threads; `forks`: the
    role of its forked children. Their own children have the role CHILD."""

    def __init__(
        self,
        directory: Path,
        role: str,
        index: int = 0,
        now: Callable[[], int] = time.monotonic_ns,
        threaded: bool = True,
        forks: str = CHILD,
    ) -> None:
        self.directory = directory.absolute()  # user code may change the working directory
        self._now = now
        self._threaded = threaded
        self._forks = forks
        self._ids = itertools.count(1)
        self._open_file(role, index, forked=False)

    def _open_file(self, role: str, index: int, forked: bool) -> None:
        self._pid = os.getpid()
        self._role, self._index, self._forked = role, index, forked
        self._opened_ns = self._now()
        # threads append without the lock: entries that arrive during a write wait for the next write
        self._queue: deque[OpenSpan | dict[str, object]] = deque()
        self._lock = threading.RLock()
        self._count_lock = threading.Lock()
        self._main = threading.main_thread().ident
        self._main_stack: list[OpenSpan] = []
        self.summed: SummedSteps | None = None
        if (every := os.environ.get(EVERY, "")).isdecimal() and int(every) > 1:
            self.summed = SummedSteps(int(every), self._main_stack, self._main, self._now)
        self._local = threading.local()
        self._fd: int | None = None
        self._file: tuple[int, int] | None = None
        self._introduced = False  # the file begins with its process line
        self._cut = False  # the file ends inside a line
        self._thread_due = self._threaded  # the background thread is not started yet
        self._stop = threading.Event()
        self._peer: clock_sync.Peer | None = None
        self._exchanged_ns = self._opened_ns
        self.cost = Cost()
        self._summed = 0  # left-out spans in `cost`
        self._sums_due_ns = 0
        self._threads = process_use.Threads(self._pid)
        self._reported_lost = 0

    def after_fork(self) -> None:
        """Prepare a forked child: a new file, an empty stack, and the role of a child. Span IDs continue, so that the
        end of a span of the parent ends no span of the child."""
        self._close()  # the parent's file
        self._threaded = True
        role, self._forks = self._forks, CHILD
        self._open_file(role, 0, forked=True)

    def identify(self, role: str, index: int) -> None:
        """Record the new role of this process, for example rank 1 of the workers."""
        self._role, self._index = role, index
        self._append(self._process_line())

    def span(self, kind: SpanKind, wait: Fields | None = None, detail: str = "", **attrs: object) -> OpenSpan | LeftOut:
        """Record an interval; see `dlobd.tracing.span`. `wait` may contain `rendezvous` and `call` of a collective."""
        if self.summed is not None and (left_out := self.summed.left_out(kind, wait, attrs)) is not None:
            return left_out
        return OpenSpan(self, kind, wait, detail, attrs)

    def instant(self, kind: InstantKind, at_ns: int | None = None, **attrs: object) -> None:
        """Record a point in time: now, or at `at_ns`."""
        at_ns = self._now() if at_ns is None else at_ns
        self._append({"k": "i", "n": kind, "t": at_ns, **({"a": attrs} if attrs else {})})

    def past(self, kind: SpanKind, start_ns: int, end_ns: int, detail: str = "", **attrs: object) -> None:
        """Record an interval that has ended and is long enough for a span; see `left_out`."""
        main = get_ident() == self._main
        stack, thread = (self._main_stack, "") if main else self._of_thread()
        line: dict[str, object] = {"k": "s", "i": next(self._ids), "p": stack[-1].id if stack else 0, "l": kind.layer}
        line |= {"n": kind.text(detail), "t": start_ns, "d": end_ns - start_ns}
        self._append(line | ({"a": attrs} if attrs else {}) | ({"th": thread} if thread else {}))

    def left_out(self) -> None:
        """Count an interval that was too short for `past`."""
        with self._count_lock:
            self.cost.left_out += 1

    def flush(self, last: bool = False) -> None:
        """Write the buffered lines, and every `SUMS_S` the sums. A disk error loses lines, but raises nothing."""
        with self._lock:
            entries = [self._queue.popleft() for _ in range(len(self._queue))]
            wall_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            due = last or wall_ns >= self._sums_due_ns
            if not entries and not (due and self._introduced):
                return
            try:
                if entries:
                    self._write(entries)
                    self.cost.flushes += 1
            except OSError as error:
                self._report_lost(error)
            if due:
                self._write_sum(self._use_line())
            now_ns = time.monotonic_ns()
            self.cost.wall_ns += now_ns - wall_ns
            self.cost.cpu_ns += time.thread_time_ns() - cpu_ns
            if due:
                self._sums_due_ns = now_ns + int(SUMS_S * 1e9)
                with self._count_lock:
                    cost = {"k": "cost", **asdict(self.cost)}
                self._write_sum(cost)
                if last:
                    self._report_lost()

    def _write(self, entries: list[OpenSpan | dict[str, object]]) -> None:
        cost = self.cost
        lines, sums = list[str](), list[Sum]()
        for entry in entries:
            if isinstance(entry, OpenSpan):
                cost.spans += not entry.written
                if text := entry.line():
                    lines.append(text)
                if entry.sums and entry.written != "b":
                    sums = entry.sums
            else:
                cost.spans += entry["k"] == "s"
                lines.append(_encode(entry))
        if sums:
            lines += [
                _encode({"k": "sum", "l": kind.layer, "n": kind, "spans": spans, "ns": ns, "bytes": size})
                for kind, spans, ns, size in sums
            ]
            before, self._summed = self._summed, sum(spans for _, spans, _, _ in sums)
            with self._count_lock:
                cost.left_out += self._summed - before
        try:
            if not self._is_open():
                self._open()
        except OSError:
            cost.lost_lines += len(lines)
            raise
        if not self._introduced:
            lines = [_encode(self._process_line()), _encode(self._anchor_line()), *lines]
        self._put(lines)
        self._introduced = True

    def _is_open(self) -> bool:
        """Return True if the descriptor is still that of the span file: user code may close all descriptors, and the
        kernel then gives their numbers to files of the user."""
        try:
            status = os.fstat(self._fd) if self._fd is not None else None
        except OSError:
            return False
        return status is not None and (status.st_dev, status.st_ino) == self._file

    def _close(self) -> None:
        if self._fd is not None and self._is_open():
            os.close(self._fd)
        self._fd = None

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"spans-{self._pid}-{self._opened_ns}.jsonl"
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        # not a standard descriptor that user code has closed: `print` would write to it
        self._fd = opened if opened > 2 else fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)
        if opened != self._fd:
            os.close(opened)
        status = os.fstat(self._fd)
        self._file = (status.st_dev, status.st_ino)

    def _write_sum(self, line: dict[str, object]) -> None:
        if not self._introduced or not self._is_open():
            return  # no line could be written: stderr reports the number of lost lines
        lost = self.cost.lost_lines
        try:
            self._put([_encode(line)])
        except OSError:
            self.cost.lost_lines = lost  # the next line repeats these sums

    def _put(self, lines: list[str]) -> None:
        assert self._fd is not None
        before = b"\n" if self._cut else b""
        data = before + ("\n".join(lines) + "\n").encode()
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        finally:
            whole = max(0, data.count(b"\n", 0, done) - len(before))
            if done:
                self._cut = data[done - 1] != ord("\n")
            self.cost.lines += whole
            self.cost.bytes += done
            self.cost.lost_lines += len(lines) - whole

    def _report_lost(self, error: OSError | None = None) -> None:
        # on stderr, at the first loss and at the end: the log of a job is often on another disk
        lost = self.cost.lost_lines
        if lost == self._reported_lost or (error and self._reported_lost):
            return
        self._reported_lost = lost
        state = f"so far: {error}" if error else "in all"
        try:
            print(LOST_LINES.format(lost, self._pid), state, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass  # stderr may be on the same disk, or closed

    def exchange(self) -> None:
        """Record clock-offset messages with the driver's clock server; do nothing if this process has no such peer."""
        if self._peer is None:
            return
        for pair in self._peer.exchange():
            self._append({"k": "x", "domain_b": self._peer.domain, **asdict(pair)})
        self._exchanged_ns = self._now()

    def leave(self) -> None:
        """Record the last clock-offset messages before the process ends, unless the previous exchange is recent."""
        if self._now() - self._exchanged_ns >= FIRST_EXCHANGE_S * 1e9:
            self.exchange()

    def close(self) -> None:
        """Write the buffered lines, a last anchor and the cost, and stop the background thread."""
        self._stop.set()
        self.leave()
        with self._lock:
            if self._queue or self._fd is not None:
                self._queue.append(self._anchor_line())
                self.flush(last=True)
            self._close()
            self._introduced = False

    def _of_thread(self) -> tuple[list[OpenSpan], str]:
        if not hasattr(self._local, "stack"):
            self._local.stack, self._local.name = [], threading.current_thread().name
        return self._local.stack, self._local.name

    def _append(self, line: dict[str, object]) -> None:
        self._queue.append(line)
        if self._thread_due:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread_due:
                self._thread_due = False
                # unknown to `threading`: a script may join or count the threads that `threading` lists
                _thread.start_new_thread(self._flush_often, ())

    def _flush_often(self) -> None:
        anchor_due = self._now() + int(ANCHOR_S * 1e9)
        # in this thread, because the main thread must not wait for an exchange
        self._peer = clock_sync.peer()
        self.exchange()
        pause_s = FIRST_EXCHANGE_S
        while not self._stop.wait(FLUSH_S):
            if self._now() >= anchor_due:
                self._queue.append(self._anchor_line())
                anchor_due += int(ANCHOR_S * 1e9)
            if self._now() - self._exchanged_ns >= pause_s * 1e9:
                self.exchange()
                pause_s = min(2 * pause_s, EXCHANGE_S)
            self.flush()

    def _process_line(self) -> dict[str, object]:
        line = {"k": "process", "host": clock.host_name(), "role": self._role, "index": self._index, "pid": self._pid}
        line |= {"parent": os.getppid(), "start_ns": clock.process_start_ns(), "opened_ns": self._opened_ns}
        return line | {"forked": self._forked, "domain": clock.domain(), "schema": SCHEMA_VERSION}

    def _use_line(self) -> dict[str, object]:
        times, (major, block_io) = self._threads.read(), process_use.faults(self._pid) or (None, None)
        main = [times.lane_on_core_ns, times.lane_waiting_ns] if times else None
        threads = [times.threads_on_core_ns, times.threads_waiting_ns] if times else None
        line = {"k": "u", "t": time.monotonic_ns(), "main": main, "threads": threads}
        line |= {"cpu": process_use.cpu_ns(self._pid), "read": process_use.read_bytes(self._pid)}
        return line | {"major": major, "block_io": block_io, "pressure": process_use.pressure()}

    def _anchor_line(self) -> dict[str, object]:
        now = clock.anchor()
        return {"k": "anchor", "monotonic_ns": now.monotonic_ns, "wall_ns": now.wall_ns, "error_ns": now.error_ns}


_quoted = encode_basestring_ascii

# made once: `json.dumps` makes an encoder in each call, which costs as much as the encoding
_encode: Callable[[object], str] = json.JSONEncoder(separators=(",", ":"), default=str).encode


def _members(values: Fields) -> str:
    """Encode a JSON object. Common values bypass the encoder, because it is slow."""
    text = ""
    for name, value in values.items():
        if type(value) is int:
            text += f",{_quoted(name)}:{value}"
        elif isinstance(value, str):
            text += f",{_quoted(name)}:{_quoted(value)}"
        elif isinstance(value, list) and len(value) == 1 and type(value[0]) is str:
            text += f",{_quoted(name)}:[{_quoted(value[0])}]"
        else:
            text += f",{_quoted(name)}:{_encode(value)}"
    return f"{{{text[1:]}}}"


@lru_cache(1024)  # few pairs of layer and name are new
def _layer_and_name(layer: str, name: str) -> str:
    return f'"l":{_quoted(layer)},"n":{_quoted(name)}'
