"""Delays inside the job's own Python processes, at the place where a slow layer would spend its time.

`sitecustomize` calls `install` at the start of every interpreter of the job, before any other code. A delay wraps the
innermost function of its layer, so that dlobd's own spans enclose it as they enclose the real work. This module
records no spans.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import struct
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from dlobd.faults import injection_log
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos_compat import Function, replace

if TYPE_CHECKING:
    from dlobd.job.description import Job

FIRST, EVERY = 4, 4
"""Passes before the first delay of a point, which skip one-off work, and passes between two delays."""

PUT, GET = 2, 12
"""Extra passes before the first delay of feed/put and feed/get, so that two points are not delayed at once."""

STEP, DECODE = 8, 9
"""Steps from the delayed step to the end of training: by then the feeding side has no work left."""

PARTS = ("channel/wire", "channel/pack", "channel/wait", "channel/unpack")
"""Parts of an exchange. Each part is delayed in its own steps, because two delays at once would hide each other. After
unpack, the next delay is in wire: the barrier before it keeps the other ranks out until the first delay is over."""

ARM_S = 30.0
LOOK_S = 0.001
DRAINED_NS = 100_000_000
COUNT = struct.Struct("<q")

Armed = Callable[[], int | None]
"""Function that returns the time on CLOCK_MONOTONIC from which a delay holds up the job; None while it would not."""


def install(directory: str) -> None:
    """Prepare this process for the delays in `directory`/plan.json, which maps a point to the seconds of its delays."""
    where = Path(directory)
    plan: dict[str, list[float]] = json.loads((where / "plan.json").read_text())
    for module, points, prepare in _PATCHES:
        if plan.keys() & set(points):
            on_import(module, None, partial(prepare, directory=where, plan=plan))


def sitecustomize(directory: Path) -> str:
    """Return the text of a sitecustomize.py that prepares every Python process of a job."""
    return f"from dlobd.faults import hooks\n\nhooks.install({str(directory)!r})\n"


class _Delay:
    """Delays of one point in this process; `passed` counts the passes."""

    def __init__(self, directory: Path, plan: dict[str, list[float]], point: str, shift: int = 0) -> None:
        self._directory = directory
        self._point = point
        self._seconds = plan.get(point, [])
        self.first = FIRST + shift
        self.passed = 0

    def once(self, armed: Armed = time.monotonic_ns, wait: Callable[[float], object] = time.sleep) -> None:
        """Inject the only delay of a point that a run passes once."""
        if self._seconds:
            self._inject(0, armed, wait)

    def passing(self, armed: Armed = time.monotonic_ns, wait: Callable[[float], object] = time.sleep) -> None:
        """Count a pass, and inject the delay that is due."""
        index, rest = divmod(self.passed - self.first, EVERY)
        self.passed += 1
        if rest == 0 and 0 <= index < len(self._seconds):
            self._inject(index, armed, wait)

    def _inject(self, index: int, armed: Armed, wait: Callable[[float], object]) -> None:
        if not injection_log.claim(self._directory, self._point, index):
            return
        deadline = time.monotonic() + ARM_S
        while (since_ns := armed()) is None:
            if time.monotonic() > deadline:
                return  # the score reports it as missing
            time.sleep(LOOK_S)
        injection_log.inject(self._directory, self._point, self._seconds[index], wait, since_ns)


def _when(holds: Callable[[], bool]) -> Armed:
    return lambda: time.monotonic_ns() if holds() else None


def _compute(seconds: float) -> None:
    until_ns = time.monotonic_ns() + round(seconds * 1e9)
    while time.monotonic_ns() < until_ns:
        pass


# ---- the trainer


def _step(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    first, delay = _Delay(directory, plan, "tensorflow/first-step"), _Delay(directory, plan, "tensorflow/step")

    @replace(module, "_compute_function")
    def compute_function(original: Function, tf: object, job: Job, *args: object) -> Function:
        compute = original(tf, job, *args)
        first.first, delay.first = 0, job.steps - STEP

        def slow(*batch: object) -> object:
            first.passing(wait=_compute)
            delay.passing(wait=_compute)
            return compute(*batch)

        return slow


def _exchange(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    """Delay the parts of an exchange outside of the compiled step."""

    @replace(module, "_compute_function")
    def compute_function(
        original: Function, tf: object, job: Job, workload: object, update: object, exchange: Any
    ) -> object:
        from dlobd.network.collectives import all_reduce, mesh
        from dlobd.network.exchanges.fusion import Fusion

        ranks = _Entered(directory, exchange._rank, job.workers)
        for number, (owner, name, armed) in enumerate(
            (
                (all_reduce.Ring, "__call__", None),
                # until the other ranks enter the barrier, they compute, and a delay would not hold them up
                (Fusion, "pack", ranks.others_have),
                (mesh, "barrier", ranks.others_have),
                (Fusion, "unpack", None),
            )
        ):
            delay = _Delay(directory, plan, PARTS[number])
            delay.first = job.steps - DECODE + number  # nothing waits for the last step
            if PARTS[number] == "channel/unpack" and exchange._rank:
                continue  # only the chief's unpack is delayed: the chief does not wait for the other ranks' unpack
            _late(owner, name, delay, armed)
        ranks.count(mesh, "barrier")
        return original(tf, job, workload, update, exchange)


def _late(owner: object, name: str, delay: _Delay, armed: Callable[[int], bool] | None) -> None:
    @replace(owner, name)
    def late(original: Function, *args: object) -> object:
        delay.passing(_when(lambda: armed(delay.passed)) if armed else time.monotonic_ns)
        return original(*args)


class _Entered:
    """Number of barriers that each rank has entered; each rank writes a file that the other ranks read."""

    def __init__(self, directory: Path, rank: int, ranks: int) -> None:
        self._files = [os.open(directory / f"entered-{r}", os.O_RDWR | os.O_CREAT, 0o600) for r in range(ranks)]
        self._own = self._files.pop(rank)
        self._count = itertools.count(1)

    def count(self, owner: object, name: str) -> None:
        @replace(owner, name)
        def entered(original: Function, *args: object) -> object:
            os.pwrite(self._own, COUNT.pack(next(self._count)), 0)
            return original(*args)

    def others_have(self, count: int) -> bool:
        """Return True if all other ranks have entered `count` barriers."""
        counts = [os.pread(file, COUNT.size, 0) for file in self._files]
        return all(len(data) == COUNT.size and COUNT.unpack(data)[0] >= count for data in counts)


def _inputs(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    delay = _Delay(directory, plan, "tensorflow/decode")

    @replace(module, "batches")
    def batches(original: Function, tf: object, job: Job, *args: object) -> object:
        delay.first = job.steps - DECODE
        return original(tf, job, *args)

    @replace(module, "decode_block")
    def decode_block(original: Function, *args: object) -> object:
        delay.passing()
        return original(*args)


# ---- TensorFlowOnSpark


def _asked(directory: Path) -> int:
    try:
        return int(COUNT.unpack((directory / "asked").read_bytes())[0])
    except (FileNotFoundError, struct.error):
        return 0


def _read_ahead(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    asked = itertools.count(1)
    file: list[int] = []  # descriptor of the counter's file, opened in the process that asks

    @replace(module.ReadAhead, "next_block")
    def next_block(original: Function, self: object) -> object:
        if not file:
            file.append(os.open(directory / "asked", os.O_WRONLY | os.O_CREAT, 0o600))
        os.pwrite(file[0], COUNT.pack(next(asked)), 0)
        return original(self)


def _data_feed(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    delay = _Delay(directory, plan, "feed/get", GET)

    @replace(module.DataFeed, "next_batch")
    def next_batch(original: Function, self: object, *args: object) -> object:
        # once the step loop has consumed every block that was read ahead
        delay.passing(_when(lambda: _asked(directory) >= delay.passed))
        return original(self, *args)


def _reservation(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    @replace(module.Client, "register")
    def register(original: Function, self: object, *args: object) -> object:
        _Delay(directory, plan, "launcher/rendezvous").once()
        return original(self, *args)


def _feed_task(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    @replace(module.FeedTask, "_timed")
    def timed(original: Function, self: object, blocks: Iterator[bytes]) -> Iterator[bytes]:
        task, put = _Delay(directory, plan, "spark/slow-task"), _Delay(directory, plan, "feed/put", PUT)
        # the inner delay is in Spark's reading, the outer delay in TensorFlowOnSpark's put
        return delayed(original(self, delayed(blocks, task)), put)

    def delayed(blocks: Iterator[bytes], delay: _Delay) -> Iterator[bytes]:
        for block in blocks:
            # once the step loop waits for a block: before that, a delay would not hold it up
            delay.passing(_when(lambda: _asked(directory) >= delay.passed))
            yield block


# ---- barrier


def _barrier(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    @replace(module, "_feed")
    def feed(original: Function, pipe: IO[bytes], blocks: Iterator[bytes], epochs: int) -> None:
        drained = _EmptyPipe(pipe.fileno())
        task, put = _Delay(directory, plan, "spark/slow-task"), _Delay(directory, plan, "feed/put", PUT)

        def slow() -> Iterator[bytes]:
            for block in blocks:
                task.passing(drained)
                yield block

        original(_SlowPipe(pipe, put, drained), slow(), epochs)


class _EmptyPipe:
    """Callable that returns the time since which a pipe has been empty; None until its reader must be waiting."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._since_ns: int | None = None

    def __call__(self) -> int | None:
        (left,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))
        if left:
            self._since_ns = None
            return None
        now_ns = time.monotonic_ns()
        since_ns = self._since_ns or now_ns
        known = now_ns - since_ns > DRAINED_NS
        self._since_ns = None if known else since_ns  # the next delay needs a new observation
        return since_ns if known else None


class _SlowPipe:
    """Pipe that writes some blocks late. A block is its length, followed by its bytes."""

    def __init__(self, pipe: IO[bytes], delay: _Delay, drained: _EmptyPipe) -> None:
        self._pipe = pipe
        self._delay = delay
        self._drained = drained
        self.fileno, self.flush = pipe.fileno, pipe.flush

    def write(self, data: bytes) -> int:
        if len(data) == COUNT.size:
            self._pipe.flush()
            self._delay.passing(self._drained)
        return self._pipe.write(data)


def _task_context(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    @replace(module.BarrierTaskContext, "allGather")
    def all_gather(original: Function, self: object, message: str = "") -> object:
        # until then all ranks wait for the start of the trainer
        _Delay(directory, plan, "launcher/rendezvous").once(_when((directory / "imported").exists))
        return original(self, message)


def _framework(module: ModuleType, directory: Path, plan: dict[str, list[float]]) -> None:
    @replace(module, "import_tensorflow")
    def import_tensorflow(original: Function) -> None:
        original()
        (directory / "imported").touch()


_PATCHES: Sequence[tuple[str, tuple[str, ...], Callable[..., None]]] = (
    ("dlobd.job.training.step", ("tensorflow/first-step", "tensorflow/step"), _step),
    ("dlobd.job.training.step", PARTS, _exchange),
    ("dlobd.job.training.inputs", ("tensorflow/decode",), _inputs),
    ("dlobd.job.launchers.tfos", ("feed/put", "spark/slow-task"), _feed_task),
    ("dlobd.job.launchers.barrier", ("feed/put", "spark/slow-task"), _barrier),
    ("dlobd.job.launchers.imports", ("launcher/rendezvous",), _framework),
    ("dlobd.job.launchers.tfos", ("feed/get", "feed/put", "spark/slow-task"), _read_ahead),
    ("tensorflowonspark.TFNode", ("feed/get",), _data_feed),
    ("tensorflowonspark.reservation", ("launcher/rendezvous",), _reservation),
    ("pyspark.taskcontext", ("launcher/rendezvous",), _task_context),
)
"""Module, the points that need it, and the function that patches it after its import."""
