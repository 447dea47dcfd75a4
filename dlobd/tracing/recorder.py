"""The recorder: `with span(kind)` writes down where time went, crash-proof, in one file a process.

Stdlib only, the same on the driver, on executors and in trainers. A file is append-only JSON lines. Lines are buffered
and written at least every `FLUSH_S`, and whenever the outermost span of a thread ends; a written line survives
`kill -9`. A span that began and ended since the last write is one line; one that is open then is a begin line, and an
end line later, so that what was open when a process was killed is known. After a fork the child opens a file of its own
with an empty stack, and its parent's open spans stay its parent's.

In the measured thread a span is one object in a queue; text is made of it when it is written. The recorder counts what
it writes, how long that takes and what a disk refused, and says so in `cost` lines: the sums since the file was opened.

Lines (key `k`):
    process   host, role, index, pid, parent, start_ns, opened_ns, forked, domain, schema    the last one holds
    anchor    monotonic_ns, wall_ns, error_ns
    x         domain_b, sent_a_ns, received_b_ns, sent_b_ns, received_a_ns           a message pair; a is this process
    s         as b, and d how long it took                                            a span, begin and end
    b         i id, p parent id, l layer, n name, t time; optional w wait, a attributes, th thread
    e         i id, t time; optional a attributes
    i         n name, t time; optional a attributes                                   an instant
    cost      spans, lines, bytes, flushes, wall_ns, cpu_ns, lost_lines, left_out     see `Cost`
    u         t, and what the kernel has counted until then: main and threads [on a core, waiting for one], cpu, read,
              major, block_io, pressure; see `dlobd.tracing.process_use`
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

from dlobd.schema import SCHEMA_VERSION
from dlobd.spans import InstantKind, SpanKind
from dlobd.tracing import clock, clock_sync, encoding, process_use
from dlobd.tracing.open_span import OpenSpan

FLUSH_S = 0.5
"""A line is on disk at most this long after it was recorded."""

ANCHOR_S = 10.0
"""A new pair of wall and monotonic clock is written this often, so that a stepped wall clock shows."""

FIRST_EXCHANGE_S, EXCHANGE_S = 1.0, 10.0
"""Where the driver has another clock, message pairs are exchanged with it at the start, then after so long, doubling up
to the second: a rate is known only from pairs that lie apart. And once at the end, unless the last were just before."""
SUMS_S = 1.0
"""What recording has cost is written at most this often, and by the last flush; so is what the kernel has counted."""


@dataclass(slots=True)
class Cost:
    """What recording has cost one process since its file was opened.

    spans: begun and handed to the disk, whether it took them or not.
    lines, bytes: in the file.
    flushes, wall_ns, cpu_ns: how often was written, and how long that took by the clock and of its thread's CPU; text
        is made there too.
    lost_lines: refused by the disk.
    left_out: what could have been a span and was too short to be worth one.
    """

    spans: int = 0
    lines: int = 0
    bytes: int = 0
    flushes: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    lost_lines: int = 0
    left_out: int = 0


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
        now: Callable[[], int] = time.monotonic_ns,
        flush_s: float = FLUSH_S,
        threaded: bool = True,
    ) -> None:
        self.directory = directory
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
        self._queue: deque[OpenSpan | dict[str, Any]] = deque()
        self._lock = threading.RLock()
        self._count_lock = threading.Lock()
        self._main = threading.main_thread().ident
        self._main_stack: list[int] = []
        self._local = threading.local()
        self._fd: int | None = None
        self._introduced = False  # the file says whose it is
        self._cut = False  # the file ends inside a line
        self._alone = self._threaded  # the thread is not started yet
        self._stop = threading.Event()
        self._peer: clock_sync.Peer | None = None
        self._exchanged_ns = self._opened_ns
        self.cost = Cost()
        self._sums_due_ns = 0
        self._threads = process_use.Threads(self._pid)
        self._told_lost = 0

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

    def span(self, kind: SpanKind, wait: dict[str, Any] | None = None, detail: str = "", **attrs: Any) -> OpenSpan:
        """Records an interval; see `dlobd.tracing.span`. `wait` may contain waits_for, released_ns, cause and
        cause_period_ns; for a member of a collective, the collective's kind `rendezvous` and its number `call`."""
        return OpenSpan(self, kind, wait, detail, attrs)

    def instant(self, kind: InstantKind, at_ns: int | None = None, **attrs: Any) -> None:
        """Records a point in time; None: now."""
        line: dict[str, Any] = {"k": "i", "n": kind, "t": self._now() if at_ns is None else at_ns}
        if attrs:
            line["a"] = attrs
        self._append(line)

    def past(self, kind: SpanKind, start_ns: int, end_ns: int, detail: str = "", **attrs: Any) -> None:
        """Records an interval that has ended, of a kind whose short intervals get no span; see `left_out`."""
        main = get_ident() == self._main
        stack, thread = (self._main_stack, "") if main else self._of_thread()
        line = {"k": "s", "i": next(self._ids), "p": stack[-1] if stack else 0, "l": kind.layer, "n": kind.text(detail)}
        line |= {"t": start_ns, "d": end_ns - start_ns}
        if attrs:
            line["a"] = attrs
        if thread:
            line["th"] = thread
        self._append(line)

    def left_out(self) -> None:
        """Counts an interval that was too short for `past`."""
        with self._count_lock:
            self.cost.left_out += 1

    def flush(self, last: bool = False) -> None:
        """Writes what is buffered, and once in `SUMS_S` what has added up. A disk that refuses costs spans and a line
        on stderr, never the job.

        Args:
            last: the process may end without another one: the sums are written too.
        """
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
                self._tell_lost(error)
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
                    self._tell_lost()

    def _write(self, entries: list[OpenSpan | dict[str, Any]]) -> None:
        cost = self.cost
        lines = []
        for entry in entries:
            if type(entry) is dict:
                cost.spans += entry["k"] == "s"
                lines.append(encoding.encode(entry))
            else:
                cost.spans += 1
                lines.append(entry.line())  # type: ignore[union-attr]  # what is no dict is a span
        try:
            if self._fd is None:
                self.directory.mkdir(parents=True, exist_ok=True)
                path = self.directory / f"spans-{self._pid}-{self._opened_ns}.jsonl"
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError:
            cost.lost_lines += len(lines)
            raise
        if not self._introduced:
            self._put([encoding.encode(self._process_line()), encoding.encode(self._anchor_line()), *lines])
            self._introduced = True
        else:
            self._put(lines)

    def _write_sum(self, line: dict[str, Any]) -> None:
        """A file of one that could not write anything has no place for it: stderr says how much was lost."""
        if self._fd is None or not self._introduced:
            return
        lost = self.cost.lost_lines
        try:
            self._put([encoding.encode(line)])
        except OSError:
            self.cost.lost_lines = lost  # the next one says the same and more

    def _put(self, lines: list[str]) -> None:
        """Appends lines to the file; counts those that are in it, and those that are not."""
        assert self._fd is not None
        before = b"\n" if self._cut else b""
        data = before + ("\n".join(lines) + "\n").encode()
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        finally:
            whole = len(lines)
            if done:
                if done < len(data):
                    whole = max(0, data.count(b"\n", 0, done) - len(before))
                self._cut = data[done - 1] != ord("\n")
            else:
                whole = 0
            self.cost.lines += whole
            self.cost.bytes += done
            self.cost.lost_lines += len(lines) - whole

    def _tell_lost(self, error: OSError | None = None) -> None:
        """On stderr, at the first loss and at the end: a job's log is kept where spans could not be."""
        lost = self.cost.lost_lines
        if lost == self._told_lost or (error and self._told_lost):
            return
        self._told_lost = lost
        why = f"so far: {error}" if error else "in all"
        try:
            print(f"dlobd: {lost} lines of spans of process {self._pid} are lost {why}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass  # it may be the same disk

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
        """Writes what is buffered, a last anchor and the cost, and stops the thread."""
        self._stop.set()
        self.leave()
        with self._lock:
            if self._queue or self._fd is not None:
                self._queue.append(self._anchor_line())
                self.flush(last=True)
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
                self._introduced = False

    def _of_thread(self) -> tuple[list[int], str]:
        """The stack and the name of a thread that is not the main one."""
        found: tuple[list[int], str] | None = getattr(self._local, "stack_and_name", None)
        if found is None:
            found = self._local.stack_and_name = ([], threading.current_thread().name)
        return found

    def _append(self, line: dict[str, Any]) -> None:
        self._queue.append(line)
        if self._alone:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._lock:
            if self._alone:
                self._alone = False
                threading.Thread(target=self._flush_often, name="dlobd-trace", daemon=True).start()

    def _flush_often(self) -> None:
        anchor_due = self._now() + int(ANCHOR_S * 1e9)
        # here and not where the recorder is opened: the main thread does not wait for it
        self._peer = clock_sync.peer()
        self.exchange()
        pause_s = FIRST_EXCHANGE_S
        while not self._stop.wait(self._flush_s):
            if self._now() >= anchor_due:
                self._queue.append(self._anchor_line())
                anchor_due += int(ANCHOR_S * 1e9)
            if self._now() - self._exchanged_ns >= pause_s * 1e9:
                self.exchange()
                pause_s = min(2 * pause_s, EXCHANGE_S)
            self.flush()

    def _process_line(self) -> dict[str, Any]:
        return {
            "k": "process",
            "host": clock.host_name(),
            "role": self._role,
            "index": self._index,
            "pid": self._pid,
            "parent": os.getppid(),
            "start_ns": clock.process_start_ns(),
            "opened_ns": self._opened_ns,
            "forked": self._forked,
            "domain": clock.domain(),
            "schema": SCHEMA_VERSION,
        }

    def _use_line(self) -> dict[str, Any]:
        times = self._threads.read()
        faults = process_use.faults(self._pid)
        return {
            "k": "u",
            "t": time.monotonic_ns(),
            "main": [times.lane_on_core_ns, times.lane_waiting_ns] if times else None,
            "threads": [times.threads_on_core_ns, times.threads_waiting_ns] if times else None,
            "cpu": process_use.cpu_ns(self._pid),
            "read": process_use.read_bytes(self._pid),
            "major": faults[0] if faults else None,
            "block_io": faults[1] if faults else None,
            "pressure": process_use.pressure(),
        }

    def _anchor_line(self) -> dict[str, Any]:
        anchor = clock.anchor()
        return {
            "k": "anchor",
            "monotonic_ns": anchor.monotonic_ns,
            "wall_ns": anchor.wall_ns,
            "error_ns": anchor.error_ns,
        }
