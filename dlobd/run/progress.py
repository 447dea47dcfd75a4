"""Shows the current step of a command and its duration on stderr; results go to stdout.

On a terminal the last line is updated. Otherwise each message is a line, repeated after `QUIET_S` seconds of silence.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO, cast

import rich.progress
from rich.console import Console, RenderableType
from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column

QUIET_S = 15.0

_SHARE = re.compile(r"(\d+) of (\d+) MB$")


class Progress:
    """Callable for messages: `with Progress() as progress: progress("starting HDFS")`.

    A message that ends in `N of M MB` has a bar. Messages that differ only in N belong to the same step.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = _Forgiving(stream or sys.stderr)
        console = Console(file=cast(TextIO, self._stream), highlight=False)
        text = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
        columns = (SpinnerColumn(), text, _Bar(bar_width=20), TimeElapsedColumn())
        self._live = rich.progress.Progress(
            *columns, console=console, transient=True, expand=True, redirect_stdout=False, redirect_stderr=False
        )
        self._moving = console.is_terminal
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="dlobd-progress", daemon=True)
        self._message = ""
        self._start_s = self._message_s = self._written_s = time.monotonic()

    def __call__(self, message: str) -> None:
        """Show a new step; the previous step has ended."""
        with self._lock:
            message = " ".join(message.split())
            if not self._moving or _SHARE.sub("", message) != _SHARE.sub("", self._message):
                self._settle()
                self._message_s = time.monotonic()
            self._message = message
            self._draw() if self._moving else self._line(message)

    def keep(self, message: str) -> None:
        """Print a permanent line."""
        with self._lock:
            self._settle()
            self._line(" ".join(message.split()))

    def __enter__(self) -> Progress:
        self._live.start() if self._moving else self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._lock:
            self._settle()
        self._stop.set()
        self._live.stop() if self._moving else self._ticker.join()

    def _tick(self) -> None:
        while not self._stop.wait(1.0):
            with self._lock:
                if self._message and time.monotonic() - self._written_s >= QUIET_S:
                    self._line(self._message)

    def _draw(self) -> None:
        share = _SHARE.search(self._message)
        done, total = (int(share[1]), int(share[2])) if share else (0, None)
        for task in self._live.task_ids or [self._live.add_task("", total=total)]:
            self._live.update(task, description=self._message, completed=done)

    def _settle(self) -> None:
        """End the updated line; the next line is below it."""
        if self._message and self._moving:
            for task in self._live.task_ids:
                self._live.remove_task(task)
            self._line(self._message)
        self._message = ""

    def _line(self, message: str) -> None:
        now_s = time.monotonic()
        lasting = f" ({now_s - self._message_s:.0f} s)" if self._message and now_s - self._message_s >= 1 else ""
        # never truncated, because users copy it
        self._live.console.print(
            f"[{now_s - self._start_s:6.1f} s] {message}{lasting}", markup=False, emoji=False, soft_wrap=True
        )
        self._written_s = now_s


class _Bar(BarColumn):
    def render(self, task: Task) -> RenderableType:  # type: ignore[override]
        return super().render(task) if task.total else ""


class _Forgiving:
    """Stream that ignores errors, so that the run continues if its reader has ended."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            pass

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


_TRAIN = "import TensorFlow, then train"
_ENDED = "trained, saved, evaluated"
_FIRST_JOBS = {
    ("tfos", "feed"): ("TensorFlowOnSpark starts its nodes", f"Spark feeds the trainers, which {_TRAIN}"),
    ("tfos", "read"): (f"TensorFlowOnSpark starts its nodes, which {_TRAIN} on their files",),
    ("barrier", "feed"): (f"Spark starts the barrier stage and feeds the trainers, which {_TRAIN}",),
    ("barrier", "read"): (f"Spark starts the barrier stage, whose trainers {_TRAIN} on their files",),
    ("distributor", "read"): (f"Spark starts the barrier stage, whose Python workers {_TRAIN} on their files",),
}
"""Meaning of the first Spark jobs of dlobd's own training, by launcher and input."""


class Narrator:
    """Converter of driver-log lines into progress messages."""

    _MESSAGES = (
        ("Running Spark version", "SparkContext starts"),
        ("Submitting application", "application submitted to the ResourceManager"),
        ("has started running", "ApplicationMaster registered"),
        ("Registered executor", "an executor registered"),
        ("SparkContext is stopping", "SparkContext stops"),
    )

    def __init__(self, progress: Callable[[str], None], launcher: str, source: str | None) -> None:
        """Select the messages for a launcher and the input `source`; None for the user's own script."""
        self._progress = progress
        kind = launcher.removesuffix("-stock")
        jobs = [(f"Got job {i} ", words) for i, words in enumerate(_FIRST_JOBS.get((kind, source or ""), ()))]
        if not jobs:
            jobs = [("Got job ", "a Spark job runs")]
        elif kind == "tfos":
            jobs.append((f"Got job {len(jobs)} ", f"{_ENDED}; TensorFlowOnSpark shuts down"))
        else:
            jobs.append(("Job 0 finished", _ENDED))
        self._messages = (*self._MESSAGES, *jobs)

    def __call__(self, line: str) -> None:
        for mark, message in self._messages:
            if mark in line:
                self._progress(f"submit: {message}")
