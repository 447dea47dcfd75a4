"""Hooks for PyTorch inside a training process: its process group, the input of DataLoader, and the steps.

A step ends with a call of an optimiser's `step`. It begins with the first backward pass since the previous step, or
with the forward pass of DistributedDataParallel before it. Forward passes of other models are not observed: a hook in
every module would slow each call. As with TensorFlow, `dlobd.evidence.own_steps` derives the steps from the calls.
"""

import functools
import itertools
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.tfos_compat import Function, replace
from dlobd.job.user import steps
from dlobd.tracing.clock import monotonic_ns


class _Step:
    """The unfinished step of the thread of the main function."""

    begin_ns = 0  # 0: it has not begun


def record(torch: Any, call: int) -> None:
    """Install the hooks after the import of PyTorch. `call`: number of the process group's rendezvous."""
    for hook in (_record_optimizers, _record_passes, _record_input):
        steps.attempt(hook, torch)
    steps.attempt(_record_process_group, torch, call)


def _record_process_group(torch: Any, call: int) -> None:
    original, calls = torch.distributed.init_process_group, itertools.count(call)

    @functools.wraps(original)
    def init_process_group(*args: object, **kwargs: object) -> object:
        with tracing.span(kinds.JOIN_RANKS, {"call": next(calls)}):
            return original(*args, **kwargs)

    for module in (torch.distributed, torch.distributed.distributed_c10d):
        module.init_process_group = init_process_group


def _record_passes(torch: Any) -> None:
    def observe(original: Function, *args: object, **kwargs: object) -> object:
        if not _Step.begin_ns and not steps.elsewhere() and torch.is_grad_enabled():
            _Step.begin_ns = monotonic_ns()
        return original(*args, **kwargs)

    replace(torch.autograd, "backward")(observe)
    replace(torch.nn.parallel.DistributedDataParallel, "forward")(observe)


def _record_optimizers(torch: Any) -> None:
    numbers = itertools.count(1)
    known: WeakKeyDictionary[object, int] = WeakKeyDictionary()
    wrapped: set[type] = set()

    def step(original: Function, self: Any, *args: object, **kwargs: object) -> object:
        if steps.elsewhere():
            return original(self, *args, **kwargs)
        start_ns = monotonic_ns()
        with steps.Outermost(nullcontext()):
            result = original(self, *args, **kwargs)
        number = known.get(self) or known.setdefault(self, next(numbers))
        begin_ns, _Step.begin_ns = _Step.begin_ns or start_ns, 0
        name = f"{type(self).__name__}.step"
        tracing.past(kinds.CALL, begin_ns, monotonic_ns(), name, trains=True, function=number)
        steps.trained()
        return result

    @replace(torch.optim.Optimizer, "__init__")
    def init(original: Function, self: Any, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        owner = next(each for each in type(self).__mro__ if "step" in vars(each))
        if owner not in wrapped:
            wrapped.add(owner)
            replace(owner, "step")(step)


def _record_input(torch: Any) -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    iterator.__next__ = steps.recorded_next(iterator.__next__, lambda: True, (StopIteration,))
    iterator.next = iterator.__next__
