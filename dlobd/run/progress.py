"""Shows a person, all the time, which step a command is at and how long it has taken. On stderr: results go to stdout.

On a terminal the last line moves; elsewhere each message is a line, and so is every `QUIET_S` seconds without one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

QUIET_S = 15.0


class Progress:
    """A callable that takes messages: `with Progress() as progress: progress("starting HDFS")`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._moving = self._stream.isatty()
        self._start_s = time.monotonic()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="dlobd-progress", daemon=True)
        self._message = ""
        self._message_s = self._written_s = self._start_s

    def __call__(self, message: str) -> None:
        """Says what is being done now; the step before it is finished."""
        with self._lock:
            self._settle()
            self._message, self._message_s = " ".join(message.split()), time.monotonic()
            self._draw()

    def keep(self, message: str) -> None:
        """Says what has happened, in a line of its own."""
        with self._lock:
            self._settle()
            self._write(f"[{time.monotonic() - self._start_s:6.1f} s] {' '.join(message.split())}\n")
            self._written_s = time.monotonic()

    def __enter__(self) -> Progress:
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._ticker.join()
        with self._lock:
            self._settle()

    def _tick(self) -> None:
        while not self._stop.wait(1.0):
            with self._lock:
                if self._message and (self._moving or time.monotonic() - self._written_s >= QUIET_S):
                    self._draw()

    def _draw(self) -> None:
        now_s = time.monotonic()
        lasting = f" ({now_s - self._message_s:.0f} s)" if now_s - self._message_s >= 1 else ""
        line = f"[{now_s - self._start_s:6.1f} s] {self._message}{lasting}"
        self._write(f"\r\x1b[2K{line[:200]}" if self._moving else f"{line}\n")
        self._written_s = now_s

    def _settle(self) -> None:
        """Leaves the moving line where it is and goes on below it."""
        if self._message and self._moving:
            self._draw()
            self._write("\n")
        self._message = ""

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody watches any more: the run goes on


class Narrator:
    """Turns lines of a driver's log into what a person wants to hear while waiting."""

    _SAYS = (
        ("Running Spark version", "SparkContext starts"),
        ("Submitting application", "application submitted to the ResourceManager"),
        ("has started running", "ApplicationMaster registered"),
        ("Registered executor", "an executor registered"),
        ("SparkContext is stopping", "SparkContext stops"),
    )
    _TRAINING = (
        ("Got job 0 ", "TensorFlowOnSpark starts its nodes"),
        ("Got job 1 ", "Spark feeds; the trainers import TensorFlow, then train"),
        ("Got job 2 ", "trained, saved, evaluated; TensorFlowOnSpark shuts down"),
    )

    def __init__(self, progress: Callable[[str], None], training: bool = True) -> None:
        """`training`: whether the job is dlobd's own, whose Spark jobs are known by their number."""
        self._progress = progress
        self._says = (*self._SAYS, *(self._TRAINING if training else [("Got job ", "a Spark job runs")]))

    def __call__(self, line: str) -> None:
        for mark, saying in self._says:
            if mark in line:
                self._progress(f"submit: {saying}")
