"""The recorder: `with span(layer, name)` writes down where time went, crash-proof, in one file a process.

Stdlib only, the same on the driver, on executors and in trainers. A file is append-only JSON lines. A span has a begin
and an end line, so that what was open when a process was killed is known. Lines are buffered and written at least
every `FLUSH_S`, and whenever the outermost span of a thread ends; a written line survives `kill -9`. After a fork the
child opens a file of its own with an empty stack, and its parent's open spans stay its parent's.

Like `logging`, a process has one recorder, which `start` opens. Until then `span` and `instant` do nothing, so that
instrumented code runs unchanged where nobody measures.

Lines (key `k`):
    process   host, role, index, pid, start_ns, opened_ns, forked, domain, schema    may come again: the last one holds
    anchor    monotonic_ns, wall_ns, error_ns
    x         domain_b, sent_a_ns, received_b_ns, sent_b_ns, received_a_ns           a message pair; a is this process
    b         i id, p parent id, l layer, n name, t time; optional w wait, a attributes, th thread
    e         i id, t time; optional a attributes
    i         n name, t time; optional a attributes                                   an instant
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from dlobd import clock, clock_exchange
from dlobd.schema import SCHEMA_VERSION

FLUSH_S = 0.5
"""A line is on disk at most this long after it was recorded."""

ANCHOR_S = 10.0
"""A new pair of wall and monotonic clock is written this often, so that a stepped wall clock shows."""

FIRST_EXCHANGE_S, EXCHANGE_S = 1.0, 10.0
"""Where the driver has another clock, message pairs are exchanged with it at the start, then after so long, doubling up
to the second: a rate is known only from pairs that lie apart. And once at the end, unless the last were just before."""

# made once: `json.dumps` makes an encoder a call, which costs as much as the encoding
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


class _OpenSpan:
    """The context manager that `Recorder.span` returns."""

    __slots__ = ("_attrs", "_begin", "_id", "_recorder")

    def __init__(self, recorder: Recorder, begin: dict[str, Any]) -> None:
        self._recorder = recorder
        self._begin = begin
        self._attrs: dict[str, Any] | None = None
        self._id = 0

    def note(self, **attrs: Any) -> None:
        """Adds what is known only later, such as a number of bytes, to the span's end line."""
        self._attrs = {**(self._attrs or {}), **attrs}

    def __enter__(self) -> _OpenSpan:
        self._id = self._recorder._begin(self._begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            self.note(error=kind.__name__)
        self._recorder._end(self._id, self._attrs)


class _NoSpan:
    """What `span` returns while nothing is recorded."""

    def note(self, **attrs: Any) -> None:
        pass

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Recorder:
    """Writes the spans of one process.

    Args:
        directory: where the file goes; on YARN the container's own log directory, so that YARN keeps it.
        role, index: of this process, as in `dlobd.schema.Process`.
        now: the clock, replaced in tests.
        flush_s: how often the background thread writes.
        threaded: False for a process that must not start a thread before it forks; its children do.
    """

    def __init__(
        self,
        directory: Path,
        role: str,
        index: int = 0,
        now: Callable[[], int] = clock.monotonic_ns,
        flush_s: float = FLUSH_S,
        threaded: bool = True,
    ) -> None:
        self._directory = directory
        self._now = now
        self._flush_s = flush_s
        self._threaded = threaded
        self._ids = itertools.count(1)
        self._open_file(role, index, forked=False)

    def _open_file(self, role: str, index: int, forked: bool) -> None:
        self._pid = os.getpid()
        self._role, self._index, self._forked = role, index, forked
        self._opened_ns = self._now()
        # threads append without the lock: what they add while others are written stays for the next time
        self._lines: deque[dict[str, Any]] = deque()
        self._lost = False
        self._lock = threading.RLock()
        self._local = threading.local()
        self._fd: int | None = None
        self._flusher: threading.Thread | None = None
        self._stop = threading.Event()
        self._peer: clock_exchange.Peer | None = None
        self._exchanged_ns = self._opened_ns

    def after_fork(self) -> None:
        """In a forked child: a new file, an empty stack, and a thread of its own, once it records something.

        Ids go on from the parent's, so that the end of a span that was open at the fork fits no span of the child."""
        if self._fd is not None:
            os.close(self._fd)  # the parent's file
        self._threaded = True
        self._open_file(self._role, self._index, forked=True)

    def identify(self, role: str, index: int) -> None:
        """Says what this process has become, for example rank 1 of the workers."""
        self._role, self._index = role, index
        self._append(self._process_line())

    def span(self, layer: str, name: str, wait: dict[str, Any] | None = None, **attrs: Any) -> _OpenSpan:
        """An interval of `layer`. `wait` may hold waits_for, released_ns, rendezvous, cause and cause_period_ns."""
        begin: dict[str, Any] = {"k": "b", "l": layer, "n": name}
        if wait:
            begin["w"] = wait
        if attrs:
            begin["a"] = attrs
        return _OpenSpan(self, begin)

    def instant(self, name: str, **attrs: Any) -> None:
        """A point in time."""
        line: dict[str, Any] = {"k": "i", "n": name, "t": self._now()}
        if attrs:
            line["a"] = attrs
        self._append(line)

    def past(self, layer: str, name: str, start_ns: int, end_ns: int, **attrs: Any) -> None:
        """An interval that is over, for those that are worth a span only if they took long."""
        span_id: int = next(self._ids)
        stack = self._stack()
        begin: dict[str, Any] = {"k": "b", "l": layer, "n": name, "i": span_id, "p": stack[-1] if stack else 0}
        if attrs:
            begin["a"] = attrs
        if threading.current_thread() is not threading.main_thread():
            begin["th"] = threading.current_thread().name
        self._append(begin | {"t": start_ns})
        self._append({"k": "e", "i": span_id, "t": end_ns})

    def flush(self) -> None:
        """Writes what is buffered. A disk that refuses costs spans and one line on stderr, never the job."""
        with self._lock:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if not lines:
                return
            try:
                self._write(lines)
            except OSError as error:
                if not self._lost:
                    print(f"dlobd: spans of process {self._pid} are lost: {error}", file=sys.stderr)
                self._lost = True

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self._fd is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"spans-{self._pid}-{self._opened_ns}.jsonl"
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            lines = [self._process_line(), self._anchor_line(), *lines]
        data = "".join(_encode(line) + "\n" for line in lines).encode()
        while data:
            data = data[os.write(self._fd, data) :]

    def exchange(self) -> None:
        """Exchanges messages with the driver's clock, where that is another one."""
        if self._peer is None:
            return
        for each in self._peer.exchange():
            self._append(
                {
                    "k": "x",
                    "domain_b": self._peer.domain,
                    "sent_a_ns": each.sent_a_ns,
                    "received_b_ns": each.received_b_ns,
                    "sent_b_ns": each.sent_b_ns,
                    "received_a_ns": each.received_a_ns,
                }
            )
        self._exchanged_ns = self._now()

    def leave(self) -> None:
        """The last exchange of a process that is about to end."""
        if self._now() - self._exchanged_ns >= FIRST_EXCHANGE_S * 1e9:
            self.exchange()

    def close(self) -> None:
        """Writes what is buffered and a last anchor, and stops the thread."""
        self._stop.set()
        self.leave()
        with self._lock:
            if self._lines or self._fd is not None:
                self._lines.append(self._anchor_line())
                self.flush()
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _begin(self, line: dict[str, Any]) -> int:
        stack = self._stack()
        span_id: int = next(self._ids)
        line["i"] = span_id
        line["p"] = stack[-1] if stack else 0
        if threading.current_thread() is not threading.main_thread():
            line["th"] = threading.current_thread().name
        stack.append(span_id)
        line["t"] = self._now()
        self._append(line)
        return span_id

    def _end(self, span_id: int, attrs: dict[str, Any] | None) -> None:
        line: dict[str, Any] = {"k": "e", "i": span_id, "t": self._now()}
        stack = self._stack()
        if span_id in stack:
            del stack[stack.index(span_id) :]
        if attrs:
            line["a"] = attrs
        self._append(line)
        if not stack:
            # PySpark's workers and multiprocessing's children leave by os._exit, which runs no exit handler
            self.flush()

    def _stack(self) -> list[int]:
        stack: list[int] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _append(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        if self._flusher is None and self._threaded:
            self._flusher = threading.Thread(target=self._flush_often, name="dlobd-trace", daemon=True)
            self._flusher.start()

    def _flush_often(self) -> None:
        anchor_due = self._now() + int(ANCHOR_S * 1e9)
        # here and not where the recorder is opened: the main thread does not wait for it
        self._peer = clock_exchange.peer()
        self.exchange()
        pause_s = FIRST_EXCHANGE_S
        while not self._stop.wait(self._flush_s):
            if self._now() >= anchor_due:
                self._lines.append(self._anchor_line())
                anchor_due += int(ANCHOR_S * 1e9)
            if self._now() - self._exchanged_ns >= pause_s * 1e9:
                self.exchange()
                pause_s = min(2 * pause_s, EXCHANGE_S)
            self.flush()

    def _process_line(self) -> dict[str, Any]:
        return {
            "k": "process",
            "host": socket.gethostname(),
            "role": self._role,
            "index": self._index,
            "pid": self._pid,
            "start_ns": clock.process_start_ns(),
            "opened_ns": self._opened_ns,
            "forked": self._forked,
            "domain": clock.domain(),
            "schema": SCHEMA_VERSION,
        }

    def _anchor_line(self) -> dict[str, Any]:
        anchor = clock.anchor()
        return {
            "k": "anchor",
            "monotonic_ns": anchor.monotonic_ns,
            "wall_ns": anchor.wall_ns,
            "error_ns": anchor.error_ns,
        }


_recorder: Recorder | None = None


def start(directory: str | Path, role: str, index: int = 0, threaded: bool = True) -> Recorder:
    """Opens this process's recorder; a second call only says what the process has become."""
    global _recorder
    if _recorder is None:
        _recorder = Recorder(Path(directory), role, index, threaded=threaded)
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_recorder.close)
    else:
        _recorder.identify(role, index)
    return _recorder


def _after_fork() -> None:
    if _recorder is not None:
        _recorder.after_fork()


def span(layer: str, name: str, wait: dict[str, Any] | None = None, **attrs: Any) -> _OpenSpan | _NoSpan:
    """An interval of `layer` in this process: `with span("hdfs", "open") as s: ...; s.note(bytes=n)`."""
    return _NoSpan() if _recorder is None else _recorder.span(layer, name, wait, **attrs)


def instant(name: str, **attrs: Any) -> None:
    """A point in time of this process."""
    if _recorder is not None:
        _recorder.instant(name, **attrs)


def past(layer: str, name: str, start_ns: int, end_ns: int, **attrs: Any) -> None:
    """An interval of this process that is over: recorded afterwards, when it is known to be worth a span."""
    if _recorder is not None:
        _recorder.past(layer, name, start_ns, end_ns, **attrs)


def identify(role: str, index: int) -> None:
    """Says what this process has become."""
    if _recorder is not None:
        _recorder.identify(role, index)


def flush() -> None:
    """Writes what is buffered, for a process that is about to leave without exit handlers."""
    if _recorder is not None:
        _recorder.leave()
        _recorder.flush()
