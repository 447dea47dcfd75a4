"""Parts of the time of a task in a Python worker: the user's function, PySpark's loop, (de)serialisation, transfer.

The parts are exclusive sums of nanoseconds. The clock is read per call of the socket, per batch, and per call of a
function that takes a batch. PySpark calls some functions for each row: of calls shorter than `SLOW_NS`, one of `EVERY`
is timed. Other functions of RDDs, such as those of whole partitions, cannot be separated from PySpark's loop.

The span of a task has the sums. Instants have the sums of its slices: a timeline can place a slice, not its calls.
"""

import functools
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import get_ident
from types import BuiltinFunctionType, FunctionType, GeneratorType, ModuleType, TracebackType
from typing import Any
from zlib import crc32

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.tfos_compat import Function, replace
from dlobd.tracing.clock import monotonic_ns

SLICE_NS = 100_000_000
"""Shortest slice. A slice also lasts 1 % of the time of its task so far, which limits their number."""

SLOW_NS = 20_000
"""Shortest call of a function of rows that makes the next call timed, too."""

EVERY = 64
"""Shorter calls per timed call."""

LOOP, READ, WRITE, SERIALISE, FUNCTION = range(5)

# functions that a worker of Spark 4.3 uses once per batch
_CONVERSIONS = {
    "ArrowBatchTransformer": ("flatten_struct", "select_columns", "wrap_struct", "enforce_schema", "to_pandas"),
    "PandasToArrowConversion": ("convert",),
    "LocalDataToArrowConversion": ("convert",),
    "ArrowTableToRowsConversion": ("_to_pylist",),
}

# PySpark's functions that call a user's function `f` for each row
_OF_ROWS = {f"RDD.{name}.<locals>.func" for name in ("map", "flatMap", "filter")}


class _Next:
    """The evaluation of the worker's next task: its kind in PySpark, and how the user's function is timed: `measured`,
    `sampled` or `unknown`."""

    kind, how = "", ""


class Parts:
    """Parts of the time of one task, in nanoseconds. Its thread changes the current part by `enter`."""

    of_task: "Parts | None" = None  # the task of this worker, while it runs

    def __init__(self) -> None:
        self.thread, self.how = get_ident(), _Next.how
        self.sums, self._done = [0] * 5, [0] * 5
        self.rows_ns = 0  # estimate of the time of functions of rows
        self._part = LOOP
        self._start_ns = self.since_ns = self._begin_ns = monotonic_ns()
        self.due_ns = self._start_ns + SLICE_NS

    def enter(self, part: int) -> int:
        """Begin another part. Returns the previous part."""
        at_ns, before = monotonic_ns(), self._part
        self.sums[before] += at_ns - self.since_ns
        self.since_ns, self._part = at_ns, part
        return before

    def close_slice(self) -> None:
        """Record the sums of the slice that ends at the last change of the part."""
        at_ns = self.since_ns
        sums = [total - done for total, done in zip(self.sums, self._done, strict=True)]
        tracing.instant(kinds.PYTHON_SLICE, at_ns, **self._attrs(sums, self.how == "measured"))
        self._begin_ns, self._done = at_ns, self.sums[:]
        self.due_ns = at_ns + max(SLICE_NS, (at_ns - self._start_ns) // 100)

    def note(self, span: Any) -> None:
        """Add the sums to the span of the task."""
        self.enter(LOOP)
        self.close_slice()
        if self.how == "sampled":
            self.sums[FUNCTION] = min(self.rows_ns, self.sums[LOOP])
            self.sums[LOOP] -= self.sums[FUNCTION]
        span.note(evaluation=_Next.kind, how=self.how, **self._attrs(self.sums, self.how != "unknown"))

    def _attrs(self, sums: Sequence[int], function: bool) -> dict[str, int]:
        attrs = {"ns": sum(sums), "read_ns": sums[READ], "write_ns": sums[WRITE], "serialise_ns": sums[SERIALISE]}
        return attrs | ({"function_ns": sums[FUNCTION]} if function else {})


def record(worker: Any) -> None:
    """Install the hooks in the module `pyspark.worker`: spans of tasks, with their parts."""

    @replace(worker, "read_command")
    def read_command(original: Function, *args: object) -> object:
        with tracing.span(kinds.UNPICKLE_FUNCTION, task_attempt=_of_task()["task_attempt"]):
            return original(*args)

    original = getattr(worker, "capture_outputs", None)
    if original is None:
        return  # another version of PySpark: the time counts as time of the task
    unknown = "another thread reads the rows" if os.environ.get("SPARK_PIPELINED_UDF") == "1" else ""
    try:
        _record_parts(worker)
    except (AttributeError, ImportError) as error:  # another version of PySpark
        unknown = f"{type(error).__name__}: {error}"
    os.register_at_fork(after_in_child=partial(setattr, Parts, "of_task", None))
    if unknown:
        tracing.instant(kinds.PARTS_UNKNOWN, cause=unknown)

    @contextmanager
    def capture_outputs() -> Iterator[None]:
        with tracing.span(kinds.USER_CODE, **_of_task()) as span, original():
            if unknown or not tracing.directory():
                yield
                return
            parts = Parts.of_task = Parts()
            try:
                yield
            finally:
                Parts.of_task = None
                parts.note(span)

    worker.capture_outputs = capture_outputs


def _of_task() -> dict[str, Any]:
    """Return the attempt and the stage of this worker's task; None outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt, stage = (context.taskAttemptId(), context.stageId()) if context else (None, None)
    return {"task_attempt": attempt, "stage": stage}


def record_sockets(daemon: Any) -> None:
    """Install the hook in the module `pyspark.daemon`: files that time each call of their socket."""
    daemon.os = _Os()


class _Os:
    """The module `os` for PySpark's daemon, with files of sockets that are timed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fdopen(self, fd: int, mode: str, buffering: int) -> io.BufferedIOBase:
        raw: Any = _Socket(fd, mode)
        return io.BufferedReader(raw, buffering) if mode == "rb" else io.BufferedWriter(raw, buffering)


def _during(part: int, function: Function) -> Any:
    """Return a function whose time belongs to `part`."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        parts = Parts.of_task
        if parts is None or get_ident() != parts.thread:
            return function(*args, **kwargs)
        before = parts.enter(part)
        try:
            return function(*args, **kwargs)
        finally:
            parts.enter(before)
            if parts.since_ns >= parts.due_ns:
                parts.close_slice()

    return call


class _Socket(io.FileIO):
    readinto = _during(READ, io.FileIO.readinto)
    write = _during(WRITE, io.FileIO.write)


_END = object()


def _pulled(part: int, items: Any) -> Iterator[Any]:
    """Yield items. The time until each item belongs to `part`."""
    following = _during(part, partial(next, iter(items), _END))
    try:
        while (item := following()) is not _END:
            yield item
    finally:
        if isinstance(items, GeneratorType):
            items.close()


def _of_batches(function: Function) -> Function:
    """Return the user's function of batches, groups or iterators with its time."""
    measured = _during(FUNCTION, function)

    def call(*args: object, **kwargs: object) -> object:
        inputs = [_pulled(LOOP, value) if isinstance(value, Iterator) else value for value in args]
        result = measured(*inputs, **kwargs)
        return _pulled(FUNCTION, result) if isinstance(result, Iterator) else result

    return call


def _of_rows(function: Function, safe: Function) -> Function:
    """Return the user's function of rows; some calls are timed. safe: replaces StopIteration, as PySpark does."""
    every = left = 1

    def call(*args: object) -> object:  # without keywords, which cost more than the count
        nonlocal every, left
        left -= 1
        try:
            if left:
                return function(*args)
            start_ns = monotonic_ns()
            result = function(*args)
            ns = monotonic_ns() - start_ns
            if parts := Parts.of_task:
                parts.rows_ns += every * ns
                if isinstance(result, Iterator):  # it does its work later
                    parts.how = "unknown"
            every = left = 1 if ns >= SLOW_NS else EVERY
            return result
        except StopIteration as error:
            return safe(_raise)(error)

    return call


def _raise(error: Exception) -> None:
    raise error


def _without_hooks(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the hooks."""
    own, kept = {function.__code__.co_filename for function in (_raise, replace)}, []
    while traceback:
        kept += [traceback] * (traceback.tb_frame.f_code.co_filename not in own)
        traceback = traceback.tb_next
    for one in reversed(kept):
        traceback = TracebackType(traceback, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return traceback


def _record_parts(worker: Any) -> None:
    from pyspark import serializers, util
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    names = {value: name for name, value in vars(util.PythonEvalType).items() if isinstance(value, int)}
    safe = util.fail_on_stopiteration

    def fail_on_stopiteration(function: Function) -> Function:
        if _Next.how == "sampled":
            return _of_rows(function, safe)
        return _of_batches(safe(function)) if _Next.how == "measured" else safe(function)

    @replace(worker, "read_command")
    def read_command(original: Function, *args: object) -> object:
        command: Any = original(*args)
        if isinstance(command, tuple) and len(command) == 4:  # of an RDD: function, profiler, deserialiser, serialiser
            _Next.kind, _Next.how = "NON_UDF", "unknown"
            with suppress(ValueError, RecursionError):  # a function that refers to itself, or to an unset variable
                _Next.how = "sampled" if _only_of_rows(command[0]) else "unknown"
        return command

    for reader in ("read_udfs", "read_udtf"):

        @replace(worker, reader)
        def read(original: Function, serializer: object, info: object, kind: int, *more: object) -> object:
            _Next.kind = names.get(kind, str(kind))
            _Next.how = "unknown" if original.__name__ == "read_udtf" else "measured"
            if _Next.kind == "SQL_BATCHED_UDF":
                _Next.how = "sampled"
            return original(serializer, info, kind, *more)

    @replace(worker, "read_single_udf")
    def read_single_udf(original: Function, serializer: object, info: Any, *args: Any, **more: Any) -> Any:
        if _Next.how == "sampled" and info.kwargs:
            _Next.how = "unknown"
        found: Any = original(serializer, info, *args, **more)
        iterates = _Next.kind == "SQL_SCALAR_PANDAS_ITER_UDF"  # the only kind without `fail_on_stopiteration`
        return (_of_batches(found[0]), *found[1:]) if iterates else found

    @replace(worker, "handle_worker_exception")
    def handle_worker_exception(original: Function, error: BaseException, *args: object) -> None:
        shown: BaseException | None = error
        while shown:
            shown.__traceback__ = _without_hooks(shown.__traceback__)
            shown = shown.__context__
        original(error, *args)

    for name, methods in _CONVERSIONS.items():
        conversion = getattr(worker, name)
        for method in methods:
            setattr(conversion, method, staticmethod(_during(SERIALISE, getattr(conversion, method))))
    for pickler in (serializers.CloudPickleSerializer, serializers.PickleSerializer, serializers.MarshalSerializer):
        for method in ("loads", "dumps"):
            setattr(pickler, method, _during(SERIALISE, getattr(pickler, method)))

    @replace(ArrowStreamSerializer, "load_stream")
    def load_stream(original: Function, *args: object) -> object:
        return _pulled(SERIALISE, original(*args))

    dump = _during(SERIALISE, ArrowStreamSerializer.dump_stream)
    ArrowStreamSerializer.dump_stream = lambda self, items, stream: dump(self, _pulled(LOOP, items), stream)
    # functions of RDDs look it up in `util` while they are unpickled
    worker.fail_on_stopiteration = util.fail_on_stopiteration = fail_on_stopiteration


def _only_of_rows(value: object) -> bool:
    """Return True if all functions of an RDD are PySpark's own, or are called for each row."""
    if not isinstance(value, FunctionType):
        return value is None or isinstance(value, (int, float, str, BuiltinFunctionType))
    inner = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
    if value.__qualname__ in _OF_ROWS:
        del inner["f"]
    own = (value.__module__ or "").startswith("pyspark.")
    return own and all(_only_of_rows(cell.cell_contents) for cell in inner.values())


def record_barriers(module: ModuleType) -> None:
    """Install the hooks in the module `pyspark.taskcontext`: spans of the barriers of barrier tasks."""
    calls = Counter[str]()

    def wait(original: Function, self: Any, *args: object, **kwargs: object) -> object:
        # the same for all tasks of a stage, and for no other stage of this or another application
        stage = f"{[info.address for info in self.getTaskInfos()]}/{self.stageId()}"
        calls[stage] += 1
        with tracing.span(kinds.BARRIER, {"call": crc32(f"{stage}/{calls[stage]}".encode())}):
            return original(self, *args, **kwargs)

    for name in ("barrier", "allGather"):
        replace(module.BarrierTaskContext, name)(wait)
