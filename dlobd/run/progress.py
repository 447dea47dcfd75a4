"""Shows the current step of a command on stderr; results go to stdout.

A line has the time at which its step began, on a terminal and in a file. Below it, a terminal shows how long the step
takes. A file gets the line again after `QUIET_S` seconds of silence.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO, cast

import rich.progress
from rich.console import Console, RenderableType
from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column

from dlobd.schema import Experiment, Runnable
from dlobd.spans import TRAINING_LINE

QUIET_S = 15.0

_COUNT = re.compile(r"[\d.]+(?= of \d)|[\d.]+$")
_SHARE = re.compile(r"(\d+) of (\d+) MB$")


class Progress:
    """Callable for messages: `with Progress() as progress: progress("starting HDFS")`.

    Messages that differ only in N of `N of M`, or in a number at the end, belong to the same step: the first and the
    last of them stay. A message that ends in `N of M MB` has a bar.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = _Forgiving(stream or sys.stderr)
        console = Console(file=cast(TextIO, self._stream), highlight=False)
        text = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
        columns = (SpinnerColumn(), TimeElapsedColumn(), text, _Bar(bar_width=20))
        self._live = rich.progress.Progress(
            *columns, console=console, transient=True, expand=True, redirect_stdout=False, redirect_stderr=False
        )
        self._moving = console.is_terminal
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="dlobd-progress", daemon=True)
        self._message = self._printed = self._above = ""
        self._start_s = self._message_s = self._written_s = time.monotonic()

    def __call__(self, message: str) -> None:
        """Show a new step; the previous step has ended. Or show the new counts of the current step."""
        with self._lock:
            message = " ".join(message.split())
            if not self._message or _COUNT.sub("", message) != _COUNT.sub("", self._message):
                self._settle()
                self._message_s = time.monotonic()
                self._line(message)
            self._message = message
            self._draw()

    def keep(self, message: str) -> None:
        """End the current step, and print a line."""
        with self._lock:
            self._settle()
            self._line(" ".join(message.split()))
            self._printed = ""

    def quote(self, line: str) -> None:
        """Print a line of another program's output, unchanged behind a prefix. The current step goes on."""
        with self._lock:
            self._print(f"    | {line}")
            self._draw()

    def __enter__(self) -> Self:
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
                    self._line(self._message, f" ({time.monotonic() - self._message_s:.0f} s)")

    def _draw(self) -> None:
        if not self._moving or not self._message:
            return
        share = _SHARE.search(self._message)
        done, total = (int(share[1]), int(share[2])) if share else (0, None)
        description = "" if self._above.endswith(self._message) else self._message
        for task in self._live.task_ids or [self._live.add_task("", total=total)]:
            self._live.update(task, description=description, completed=done)

    def _settle(self) -> None:
        """End the current step; its last counts stay."""
        for task in self._live.task_ids:
            self._live.remove_task(task)
        if self._message != self._printed:
            self._line(self._message)
        self._message = self._printed = ""

    def _line(self, message: str, end: str = "") -> None:
        self._print(f"[{time.monotonic() - self._start_s:6.1f} s] {message}{end}")
        self._printed = message

    def _print(self, line: str) -> None:
        # never truncated, because users copy it
        self._live.console.print(line, markup=False, emoji=False, soft_wrap=True)
        self._above, self._written_s = line, time.monotonic()


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
_SHUTDOWN = "waiting for the launcher's shutdown"
_FIRST_JOBS = {
    ("tfos", "feed"): ("waiting for TensorFlowOnSpark's nodes", f"Spark feeds the trainers, which {_TRAIN}"),
    ("tfos", "read"): (f"TensorFlowOnSpark starts its nodes, which {_TRAIN} on their files",),
    ("barrier", "feed"): (f"Spark starts the barrier stage and feeds the trainers, which {_TRAIN}",),
    ("barrier", "read"): (f"Spark starts the barrier stage, whose trainers {_TRAIN} on their files",),
    ("distributor", "read"): (f"Spark starts the barrier stage, whose Python workers {_TRAIN} on their files",),
}
"""Activity of the first Spark jobs of dlobd's own training, by launcher and input."""

_SUBMITTING = re.compile(r"Submitting application (application_\w+)")
_TRACKING = re.compile(r"tracking URL: (\S+)")
_MASTER = re.compile(r"Connected to Spark cluster with app ID (\S+)")
_JOB = re.compile(r"Got job (\d+) ")


class Narrator:
    """Converter of the driver's lines into progress messages: each names what begins, or what the job waits for."""

    def __init__(self, progress: Callable[[str], None], experiment: Runnable) -> None:
        """Select the messages for an experiment or the user's own script."""
        self._progress = progress
        self._experiment = experiment
        source = experiment.input if isinstance(experiment, Experiment) else ""
        self._kind = experiment.launcher.removesuffix("-stock")
        self._jobs = _FIRST_JOBS.get((self._kind, source), ())
        self._url = ""
        self._executors: int | None = None
        """Registered executors; None before and after the wait for them."""

    def __call__(self, line: str) -> None:
        """Receive a line of the log of spark-submit's JVM."""
        if message := self._message(line):
            self._progress(f"submit: {message}")

    def output(self, line: str) -> bool:
        """Receive a line of the driver's stdout. Return False unless it is a trainer's message."""
        if not line.startswith(TRAINING_LINE) or not isinstance(self._experiment, Experiment):
            return False
        done, each = json.loads(line.removeprefix(TRAINING_LINE)), self._experiment.steps_per_epoch
        step, of = done["step"], self._experiment.most_steps
        epoch = f"epoch {-(-step // each)} of {self._experiment.epochs}, step {step} of {of}"
        self._progress(f"submit: training, {epoch}, loss {done['loss']:.4f}")
        return True

    def _message(self, line: str) -> str:
        if "Running Spark version" in line:
            return "SparkContext starts"
        if found := _SUBMITTING.search(line):
            return f"waiting for YARN to accept {found[1]}"
        if (found := _TRACKING.search(line)) and found[1] != self._url:
            self._url = found[1]
            return f"waiting for the ApplicationMaster; tracking URL: {found[1]}"
        if self._experiment.deploy_mode == "cluster" and "(state: RUNNING)" in line:
            return "waiting for the driver in its container"
        if "has started running" in line or (found := _MASTER.search(line)):
            self._executors = 0
            of_application = f" of {found[1]}" if found else ""
            return f"waiting for executors{of_application}: {self._registered()}"
        if "Registered executor" in line and self._executors is not None:
            self._executors += 1
            if self._executors == self._experiment.workers:
                self._executors = None
                return "waiting for the first Spark job"
            return f"waiting for executors: {self._registered()}"
        if found := _JOB.search(line):
            self._executors = None
            return self._job(int(found[1]))
        if self._jobs and self._kind != "tfos" and "Job 0 finished" in line:
            return _SHUTDOWN
        if "SparkContext is stopping" in line:
            return "waiting for SparkContext to stop"
        return "waiting for spark-submit to exit" if "Successfully stopped SparkContext" in line else ""

    def _registered(self) -> str:
        return f"{self._executors} of {self._experiment.workers}"

    def _job(self, number: int) -> str:
        if not self._jobs:
            return f"the script runs Spark job {number}"
        if number < len(self._jobs):
            return self._jobs[number]
        return _SHUTDOWN if self._kind == "tfos" and number == len(self._jobs) else ""
