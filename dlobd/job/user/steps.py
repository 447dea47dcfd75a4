"""Hooks inside a user's main function: calls of tf.functions, elements of tf.data, epochs and evaluations of Keras.

A span is recorded for each outermost call in the thread of the main function. Its attribute `trains` is true if the
call writes a trainable variable. `dlobd.evidence.own_steps` derives the steps from these spans.

The hooks only read. Until the script trains they run no operation, which would initialise TensorFlow's devices. If a
part of TensorFlow or Keras differs, the script continues without this hook, and an instant records the cause.
"""

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import get_ident
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos_compat import Function, replace
from dlobd.tracing.clock import monotonic_ns

LOOPS = ("While", "StatelessWhile", "ReduceDataset", "ScanDataset")
"""Operations that run a function many times. In a graph that trains, they may be the training loop."""


class _Main:
    """State of the main function. Only its thread changes the state."""

    rank = False  # in this process runs, or ran, a main function
    thread = 0  # ID of its thread; 0: no main function runs
    inside = False  # a recorded call runs: other calls are part of it
    trained = 0  # calls that trained
    epochs = 0


class Outermost:
    """Context of a span, in which no other call is recorded."""

    __slots__ = ("_span",)

    def __init__(self, span: Any) -> None:
        self._span = span

    def __enter__(self) -> Any:
        _Main.inside = True
        return self._span.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._span.__exit__(*error)
        _Main.inside = False


@contextmanager
def main_function() -> Iterator[None]:
    """Record the calls of this thread until the end of the context, from the first import of TensorFlow on."""
    if not _Main.rank:
        os.register_at_fork(after_in_child=_leave)
        for package, hook in HOOKS:
            on_import(package, None, functools.partial(attempt, hook))
    _Main.rank, _Main.thread, _Main.inside, _Main.epochs = True, get_ident(), False, 0
    try:
        yield
    finally:
        _leave()


def _leave() -> None:
    _Main.thread = 0


def mark(name: str | None) -> AbstractContextManager[object]:
    """Open the span of a mark of the user's code; see `dlobd.marks`."""
    if name is None:
        return tracing.span(kinds.STEP if _Main.rank else kinds.MARKED_STEP)
    return tracing.span(kinds.MARKED_MAIN if _Main.rank else kinds.MARKED, detail=str(name) or "without a name")


def attempt(hook: Function, *args: object) -> bool:
    """Call a hook. Its failure is recorded, and does not reach the script."""
    try:
        hook(*args)
    except Exception as error:  # noqa: BLE001  a script must not fail for its record
        tracing.instant(kinds.STEPS_UNKNOWN, cause=f"{type(error).__name__}: {error}")
        return False
    return True


def elsewhere() -> bool:
    """Return True in other threads than that of the main function, and inside a recorded call."""
    return _Main.inside or get_ident() != _Main.thread


# --- TensorFlow ---


def _record_functions(tensorflow: Any) -> None:
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function as Polymorphic

    numbers, eagerly, original = itertools.count(1), tensorflow.executing_eagerly, Polymorphic.__call__
    functions: WeakKeyDictionary[object, Any] = WeakKeyDictionary()
    count = Polymorphic.experimental_get_tracing_count

    def classify(self: Any, known: Any, span: Any) -> None:
        traces = count(self)
        if traces == known.traces:
            return
        traced, known.traces = traces > max(known.traces, 0), traces
        known.attrs |= _properties([each.graph for each in self._list_all_concrete_functions()])
        span.note(**known.attrs, traced=traced)

    @functools.wraps(original)
    def call(self: Any, *args: object, **kwargs: object) -> object:
        if elsewhere() or not eagerly():
            return original(self, *args, **kwargs)
        known = functions.get(self)
        if known is None:
            name = getattr(getattr(self, "python_function", None), "__name__", "") or "function"
            functions[self] = known = SimpleNamespace(name=name, traces=-1, attrs={"function": next(numbers)})
        with Outermost(tracing.span(kinds.CALL, detail=known.name, **known.attrs)) as span:
            result = original(self, *args, **kwargs)
            if not attempt(classify, self, known, span):
                _leave()
        _Main.trained += known.attrs.get("trains") is True
        return result

    Polymorphic.__call__ = call


def _properties(graphs: list[Any]) -> dict[str, Any]:
    """Return `trains` of a function with these graphs, and `steps`=None if a loop in a graph trains.

    TensorFlow lists for each graph and operation the resources that it only reads, and so those that it writes."""
    from tensorflow.python.framework import auto_control_deps_utils as utils

    trains: bool | None = False if graphs else None  # a function without graph ran as Python code
    for graph in graphs:
        read = utils.get_read_only_resource_input_indices_graph(graph)
        written = {id(tensor) for place, tensor in enumerate(graph.inputs) if place not in read}
        handles = {id(variable.handle) for variable in graph.variables if variable.trainable}
        written &= {id(inner) for outer, inner in graph.captures if id(outer) in handles}
        trains = trains or bool(written)
        if written and _loops(graph, written, utils._get_read_only_resource_input_indices_op):
            return {"trains": True, "steps": None}
    return {"trains": trains}


def _loops(graph: Any, written: set[int], only_read: Function) -> bool:
    """Return True if a loop writes one of these inputs of a graph, also in the functions that it calls."""
    for operation in graph.get_operations():
        places = [place for place, tensor in enumerate(operation.inputs) if id(tensor) in written]
        if not places or not (places := [place for place in places if place not in only_read(operation)]):
            continue
        if operation.type in LOOPS:
            return True
        if operation.type.endswith("PartitionedCall"):
            called = graph._get_function(operation.get_attr("f").name).graph
            if _loops(called, {id(called.inputs[place]) for place in places}, only_read):
                return True
    return False


def _record_iterators(tensorflow: Any) -> None:
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator
    from tensorflow.python.distribute.input_lib import DistributedIteratorBase

    ends = StopIteration, tensorflow.errors.OutOfRangeError
    for owner in (OwnedIterator, DistributedIteratorBase):
        for name in ("__next__", "get_next", "get_next_as_optional"):
            setattr(owner, name, recorded_next(getattr(owner, name), tensorflow.executing_eagerly, ends))


def trained() -> None:
    """Count a call that trained."""
    _Main.trained += 1


def recorded_next(original: Function, eagerly: Function, ends: tuple[type[BaseException], ...]) -> Function:
    """Return a method that takes the next element of an iterator, with its span; an end by `ends` may be an epoch."""

    @functools.wraps(original)
    def take(self: Any, *args: object, **kwargs: object) -> object:
        if elsewhere() or not eagerly():
            return original(self, *args, **kwargs)
        begin_ns, trained = self.__dict__.setdefault("_dlobd_begun", (monotonic_ns(), _Main.trained))
        try:
            with Outermost(tracing.span(kinds.INPUT_WAIT)):
                return original(self, *args, **kwargs)
        except ends:
            self.__dict__.pop("_dlobd_begun", None)
            if _Main.trained > trained:  # otherwise it was the input of an evaluation
                _epoch_done(begin_ns)
            raise

    return take


def _epoch_done(begin_ns: int, **loss: float) -> None:
    _Main.epochs += 1
    tracing.instant(kinds.OWN_EPOCH_DONE, None, epoch=_Main.epochs, ns=monotonic_ns() - begin_ns, **loss)


# --- Keras ---


def _owner(model: type, name: str) -> type:
    """Return the class that defines a method of a model: it differs between the backends of Keras."""
    return next((each for each in model.__mro__ if name in vars(each)), model)


def _record_training(keras: Any) -> None:
    @replace(_owner(keras.Model, "make_train_function"), "make_train_function")
    def make_train_function(original: Function, self: Any, *args: object, **kwargs: object) -> object:
        before = getattr(self, "train_function", None)
        made = original(self, *args, **kwargs)
        if (function := getattr(self, "train_function", None)) is before or function is None:
            return made
        self.train_function = functools.wraps(function)(functools.partial(_train, self, function))
        return self.train_function if made is function else made


def _train(model: Any, function: Function, *args: object, **kwargs: object) -> object:
    if elsewhere():
        return function(*args, **kwargs)
    before = _iterations(model)
    with Outermost(tracing.span(kinds.CALL, detail="train_function", trains=True, function=0)) as span:
        result = function(*args, **kwargs)
        if getattr(model, "steps_per_execution", None) != 1:
            after = _iterations(model)
            span.note(steps=None if before is None or after is None else after - before)
    _Main.trained += 1
    return result


def _iterations(model: Any) -> int | None:
    """Return the number of batches that the optimiser of a model has applied, if one call may have several steps."""
    with suppress(Exception):  # another optimiser, or another version of Keras: the number of steps is unknown
        return None if model.steps_per_execution == 1 else int(model.optimizer._iterations)
    return None


def _record_evaluations(keras: Any) -> None:
    record_method(keras.Model, "evaluate", functools.partial(tracing.span, kinds.EVALUATE))
    record_method(keras.Model, "predict", functools.partial(tracing.span, kinds.CALL, detail="predict"))


def record_method(model: type, name: str, span: Callable[[], object]) -> None:
    """Record a method of a model as outermost call."""

    @replace(_owner(model, name), name)
    def method(original: Function, *args: object, **kwargs: object) -> object:
        if elsewhere():
            return original(*args, **kwargs)
        with Outermost(span()):
            return original(*args, **kwargs)


def _record_epochs(keras: Any) -> None:
    callbacks = keras.callbacks.CallbackList

    @replace(callbacks, "on_epoch_begin")
    def begin(original: Function, self: Any, *args: object, **kwargs: object) -> object:
        self._dlobd_begin_ns = monotonic_ns()
        return original(self, *args, **kwargs)

    @replace(callbacks, "on_epoch_end")
    def end(original: Function, self: Any, epoch: int, logs: Any = None) -> object:
        begin_ns = getattr(self, "_dlobd_begin_ns", None)
        if begin_ns is not None and get_ident() == _Main.thread:
            loss = math.nan
            with suppress(Exception):  # no loss, or none that is a number; the callbacks convert it too
                loss = float(logs["loss"])
            _epoch_done(begin_ns, **({"loss": loss} if math.isfinite(loss) else {}))
        return original(self, epoch, logs)


HOOKS: tuple[tuple[str, Function], ...] = (
    *(("tensorflow", hook) for hook in (_record_functions, _record_iterators)),
    *(("keras", hook) for hook in (_record_training, _record_evaluations, _record_epochs)),
)
"""Hooks that follow the first import of a package."""
