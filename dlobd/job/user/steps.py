"""Hooks inside a user's main function: calls of tf.functions, elements of tf.data, epochs and evaluations of Keras.

A span is recorded for each outermost call in the thread of the main function. Its attribute `trains` is true if the
call writes a trainable variable. `dlobd.evidence.own_steps` derives the steps from these spans.

The hooks only read: they run no operation of TensorFlow, which would initialise its devices. If a part of TensorFlow or
Keras differs from the expected, the script continues without this hook, and an instant records the cause.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import get_ident
from types import ModuleType
from typing import Any, ClassVar
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
    hooked: ClassVar[set[str]] = set()  # packages
    given_up: ClassVar[set[str]] = set()  # causes


@contextmanager
def main_function() -> Iterator[None]:
    """Record the calls of this thread until the end of the context, from the first import of TensorFlow on."""
    if not _Main.rank:
        os.register_at_fork(after_in_child=_leave)
    _Main.rank, _Main.thread, _Main.inside, _Main.epochs = True, get_ident(), False, 0
    for package, hook in (("tensorflow", _record_tensorflow), ("keras", _record_keras)):
        if package not in _Main.hooked:
            _Main.hooked.add(package)
            on_import(package, None, hook)
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


def _optional(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook whose failure is recorded, and does not reach the script."""

    @functools.wraps(hook)
    def guarded(*args: object) -> None:
        try:
            hook(*args)
        except Exception as error:  # noqa: BLE001  a script must not fail for its record
            cause = f"{type(error).__name__}: {error}"
            if cause not in _Main.given_up:
                _Main.given_up.add(cause)
                tracing.instant(kinds.STEPS_UNKNOWN, cause=cause)

    return guarded


# --- TensorFlow ---


def _record_tensorflow(tensorflow: ModuleType) -> None:
    _record_functions(tensorflow)
    _record_iterators(tensorflow)


@_optional
def _record_functions(tensorflow: Any) -> None:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function as Polymorphic

    graphs_of = {
        Polymorphic: lambda function: [each.graph for each in function._list_all_concrete_functions()],
        ConcreteFunction: lambda function: [function.graph],
    }
    counts = {Polymorphic: Polymorphic.experimental_get_tracing_count, ConcreteFunction: lambda function: 0}
    for owner in graphs_of:
        owner.__call__ = _recorded_call(owner.__call__, tensorflow.executing_eagerly, graphs_of[owner], counts[owner])


class _Known:
    """Properties of a tf.function after its last call."""

    __slots__ = ("attrs", "name", "traces")
    numbers = itertools.count(1)

    def __init__(self, name: str) -> None:
        self.name, self.traces = name, -1
        self.attrs: dict[str, Any] = {"function": next(self.numbers)}


def _recorded_call(original: Function, eagerly: Function, graphs_of: Function, count: Function) -> Function:
    known_functions: WeakKeyDictionary[object, _Known] = WeakKeyDictionary()

    @_optional
    def classify(function: object, known: _Known, span: Any) -> None:
        if (traces := count(function)) == known.traces:
            return
        traced, known.traces = traces > max(known.traces, 0), traces
        known.attrs = _properties(graphs_of(function)) | {"function": known.attrs["function"]}
        span.note(**known.attrs, traced=traced)

    @functools.wraps(original)
    def call(self: object, *args: object, **kwargs: object) -> object:
        if _Main.inside or get_ident() != _Main.thread or not eagerly():
            return original(self, *args, **kwargs)
        known = known_functions.get(self)
        if known is None:
            known = known_functions[self] = _Known(_name(self))
        _Main.inside = True
        try:
            with tracing.span(kinds.CALL, detail=known.name, **known.attrs) as span:
                result = original(self, *args, **kwargs)
                classify(self, known, span)
            _Main.trained += known.attrs.get("trains") is True
            return result
        finally:
            _Main.inside = False

    return call


def _name(function: Any) -> str:
    python = getattr(function, "python_function", None)
    return getattr(python, "__name__", "") or str(getattr(getattr(function, "graph", None), "name", "")) or "function"


def _properties(graphs: list[Any]) -> dict[str, Any]:
    """Return `trains` of a function with these graphs, and `steps`=None if a loop in a graph trains.

    TensorFlow lists for each graph and operation the resources that it only reads, and so those that it writes."""
    from tensorflow.python.framework import auto_control_deps_utils as utils

    trains: bool | None = False if graphs else None  # a function without graph ran as Python code
    for graph in graphs:
        only_read = set(utils.get_read_only_resource_input_indices_graph(graph))
        inside = {id(outer): inner for outer, inner in graph.captures}
        places = {id(tensor): place for place, tensor in enumerate(graph.inputs)}
        handles = [inside.get(id(variable.handle)) for variable in graph.variables if variable.trainable]
        written = {id(handle) for handle in handles if handle is not None and places[id(handle)] not in only_read}
        trains = trains or bool(written)
        for operation in graph.get_operations() if written else ():
            if operation.type in LOOPS:
                read = set(utils._get_read_only_resource_input_indices_op(operation))
                if any(id(t) in written and place not in read for place, t in enumerate(operation.inputs)):
                    return {"trains": True, "steps": None}
    return {"trains": trains}


@_optional
def _record_iterators(tensorflow: Any) -> None:
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator
    from tensorflow.python.distribute.input_lib import DistributedIteratorBase

    ends = StopIteration, tensorflow.errors.OutOfRangeError
    for owner in (OwnedIterator, DistributedIteratorBase):
        for name in ("__next__", "get_next", "get_next_as_optional"):
            setattr(owner, name, _recorded_next(getattr(owner, name), tensorflow.executing_eagerly, ends))


def _recorded_next(original: Function, eagerly: Function, ends: tuple[type[BaseException], ...]) -> Function:
    @functools.wraps(original)
    def take(self: Any, *args: object, **kwargs: object) -> object:
        if _Main.inside or get_ident() != _Main.thread or not eagerly():
            return original(self, *args, **kwargs)
        begun = self.__dict__.setdefault("_dlobd_begun", (monotonic_ns(), _Main.trained))
        _Main.inside = True
        try:
            with tracing.span(kinds.INPUT_WAIT):
                return original(self, *args, **kwargs)
        except ends:
            del self.__dict__["_dlobd_begun"]
            if _Main.trained > begun[1]:  # otherwise it was the input of an evaluation
                _Main.epochs += 1
                tracing.instant(kinds.OWN_EPOCH_DONE, epoch=_Main.epochs, ns=monotonic_ns() - begun[0])
            raise
        finally:
            _Main.inside = False

    return take


# --- Keras ---


def _record_keras(keras: ModuleType) -> None:
    _record_training(keras)
    _record_evaluations(keras)
    _record_epochs(keras)


def _owner(model: type, name: str) -> type:
    """Return the class that defines a method of a model: it differs between the backends of Keras."""
    return next(each for each in model.__mro__ if name in vars(each))


@_optional
def _record_training(keras: Any) -> None:
    @replace(_owner(keras.Model, "make_train_function"), "make_train_function")
    def make_train_function(original: Function, self: Any, *args: object, **kwargs: object) -> object:
        before = self.train_function
        made = original(self, *args, **kwargs)
        if (function := self.train_function) is before or function is None:
            return made
        self.train_function = _recorded_step(self, function)
        return self.train_function if made is function else made


def _recorded_step(model: Any, function: Function) -> Function:
    @functools.wraps(function)
    def train_function(*args: object, **kwargs: object) -> object:
        if _Main.inside or get_ident() != _Main.thread:
            return function(*args, **kwargs)
        before = _iterations(model)
        _Main.inside = True
        try:
            with tracing.span(kinds.CALL, detail="train_function", trains=True, function=0) as span:
                result = function(*args, **kwargs)
                if getattr(model, "steps_per_execution", None) != 1:
                    after = _iterations(model)
                    span.note(steps=after - before if before is not None and after is not None else None)
            _Main.trained += 1
            return result
        finally:
            _Main.inside = False

    return train_function


def _iterations(model: Any) -> int | None:
    """Return the number of batches that the optimiser of a model has applied, if one call may have several steps."""
    with suppress(Exception):  # another optimiser, or another version of Keras: the number of steps is unknown
        return None if model.steps_per_execution == 1 else int(model.optimizer._iterations)
    return None


@_optional
def _record_evaluations(keras: Any) -> None:
    for name, kind, detail in (("evaluate", kinds.EVALUATE, ""), ("predict", kinds.CALL, "predict")):
        _record_evaluation(_owner(keras.Model, name), name, functools.partial(tracing.span, kind, detail=detail))


def _record_evaluation(owner: type, name: str, span: Callable[[], AbstractContextManager[object]]) -> None:
    @replace(owner, name)
    def evaluate(original: Function, *args: object, **kwargs: object) -> object:
        if _Main.inside or get_ident() != _Main.thread:
            return original(*args, **kwargs)
        _Main.inside = True
        try:
            with span():
                return original(*args, **kwargs)
        finally:
            _Main.inside = False


@_optional
def _record_epochs(keras: Any) -> None:
    callbacks = keras.callbacks.CallbackList
    replace(callbacks, "on_epoch_begin")(_begin_epoch)
    replace(callbacks, "on_epoch_end")(_end_epoch)


def _begin_epoch(original: Function, self: Any, *args: object, **kwargs: object) -> object:
    if get_ident() == _Main.thread:
        self._dlobd_begin_ns = monotonic_ns()
    return original(self, *args, **kwargs)


def _end_epoch(original: Function, self: Any, epoch: int, logs: Any = None, **kwargs: object) -> object:
    begin_ns = getattr(self, "_dlobd_begin_ns", None)
    if get_ident() == _Main.thread and begin_ns is not None:
        _Main.epochs += 1
        known: dict[str, Any] = {}
        with suppress(Exception):  # no loss, or none that is a number; the callbacks convert it too
            loss = float(logs["loss"])
            known = {"loss": loss} if math.isfinite(loss) else {}
        tracing.instant(kinds.OWN_EPOCH_DONE, epoch=_Main.epochs, ns=monotonic_ns() - begin_ns, **known)
    return original(self, epoch, logs, **kwargs)
