"""Records TorchDistributor: in the process that starts torchrun, in torchrun's agent, and in the training processes.

    driver or Python worker -> pyspark.ml.torch.torch_run_process_wrapper -> torchrun's agent -> one process per rank

The recorder reaches the subprocesses by a directory on their PYTHONPATH, whose `sitecustomize` calls `begin`. Training
processes remove it again, so that their own subprocesses run as without dlobd.

A step ends with a call of an optimiser's `step`. It begins with the first backward pass since the previous step, or
with the forward pass of DistributedDataParallel before it. Forward passes of other models are not observed: a hook in
every module would slow each call. As with TensorFlow, `dlobd.evidence.own_steps` derives the steps from the calls.
"""

import atexit
import functools
import importlib.util
import itertools
import os
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

from dlobd import marks, tracing
from dlobd import spans as kinds
from dlobd.job.launchers.base import role_of
from dlobd.job.launchers.failure import MAX_CAUSE, error_line, with_option
from dlobd.job.launchers.imports import on_import, record_packages
from dlobd.job.launchers.tfos import NamedSleep
from dlobd.job.launchers.tfos_compat import Function, record_calls, replace
from dlobd.job.user import steps
from dlobd.tracing.clock import monotonic_ns

CALLER = "TORCHRUN_SPANS"
"""Variable of subprocesses: the PID of the process that waits for torchrun, and the directory of the span files."""

CHILD_PATH = str(Path(__file__).with_name("child"))


def install() -> None:
    """Record the TorchDistributor of this process and its forks, without an import."""
    _attempt_on_import("pyspark.ml.torch.distributor", _record_distributor)


def _attempt_on_import(name: str, hook: Function) -> None:
    on_import(name, None, functools.partial(steps.attempt, hook))  # another version may lack an expected part


def _record_distributor(module: ModuleType) -> None:
    execute = module.TorchDistributor._execute_command

    @functools.wraps(execute)
    def execute_command(*args: object, **kwargs: object) -> object:
        if not tracing.directory():
            return execute(*args, **kwargs)
        # the original passes this process's environment on
        os.environ[CALLER] = f"{os.getpid()}:{tracing.directory()}"
        os.environ["PYTHONPATH"] = os.pathsep.join([CHILD_PATH, *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            with tracing.span(kinds.TORCHRUN):
                return execute(*args, **kwargs)
        finally:
            _restore()

    module.TorchDistributor._execute_command = staticmethod(execute_command)


def _restore() -> None:
    os.environ.pop(CALLER, None)
    rest = os.environ.pop("PYTHONPATH", CHILD_PATH).split(os.pathsep)
    rest.remove(CHILD_PATH)
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)


def begin() -> None:
    """Start the recorder in torchrun's agent or in a training process; do nothing in other subprocesses."""
    caller, _, directory = os.environ[CALLER].partition(":")
    if "torch.distributed.run" in sys.orig_argv[1:3]:
        tracing.start(directory, kinds.TORCHRUN_ROLE)
        tracing.instant(kinds.TORCHRUN_CALLED, pid=int(caller))
        if importlib.util.find_spec("torch") is None:
            tracing.instant(kinds.RANK_FAILED, cause=with_option("ModuleNotFoundError: No module named 'torch'"))
        on_import("torch", kinds.IMPORT_TORCH)
        _attempt_on_import("torch.distributed.elastic.agent.server.api", _record_agent)
        _attempt_on_import("torch.distributed.elastic.agent.server.local_elastic_agent", _record_start)
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        _restore()
        _begin_rank(directory)


def _begin_rank(directory: str) -> None:
    role, index = role_of(int(os.environ["RANK"]))
    tracing.start(directory, role, index)
    marks.record_with(steps.mark)
    record_packages()
    on_import("pyspark", kinds.IMPORT_PYSPARK)
    call = _number(os.environ["TORCHELASTIC_RUN_ID"], os.environ.get("TORCHELASTIC_RESTART_COUNT"))
    on_import("torch", kinds.IMPORT_TORCH, functools.partial(_record_torch, call=call))
    # Python runs this handler last, after the exit handlers of the training script
    spans = ExitStack()
    atexit.register(spans.close)
    spans.enter_context(tracing.span(kinds.USER_CODE, role=role, index=index, in_task=False))
    spans.enter_context(steps.main_function())
    spans.callback(_report_failure)


def _number(*parts: object) -> int:
    """Return a number that the members of a collective share, and other runs and restarts do not."""
    return crc32(repr(parts).encode())


def _report_failure() -> None:
    if error := getattr(sys, "last_value", None):  # no handler took it
        tracing.instant(kinds.RANK_FAILED, cause=with_option(error_line(error))[:MAX_CAUSE])


def _record_agent(api: Any) -> None:
    def collective(kind: kinds.SpanKind, original: Function, agent: Any, *args: object) -> object:
        call = _number(agent._worker_group.spec.rdzv_handler.get_run_id(), agent._remaining_restarts)
        with tracing.span(kind, {"call": call}):
            return original(agent, *args)

    api.time = NamedSleep(kinds.TORCHRUN_POLL, (kinds.WAIT_TRAINER,))
    for name, kind in (("_rendezvous", kinds.TORCHRUN_RENDEZVOUS), ("_exit_barrier", kinds.TORCHRUN_EXIT_BARRIER)):
        replace(api.SimpleElasticAgent, name)(functools.partial(collective, kind))


def _record_start(module: Any) -> None:
    record_calls(module.LocalElasticAgent, "_start_workers", kinds.START_RANKS)


# ---- PyTorch in a training process: its process group, the input of DataLoader, and the steps


class _Step:
    """The unfinished step of the thread of the main function."""

    begin_ns = 0  # 0: it has not begun


def _record_torch(torch: Any, call: int) -> None:
    """Install the hooks after the import of PyTorch. `call`: number of the process group's rendezvous."""
    for hook in (_record_optimizers, _record_passes, _record_input):
        steps.attempt(hook, torch)
    steps.attempt(_record_process_group, torch, call)


def _record_process_group(torch: Any, call: int) -> None:
    calls = itertools.count(call)

    @replace(torch.distributed, "init_process_group")
    def join(original: Function, *args: object, **kwargs: object) -> object:
        with tracing.span(kinds.JOIN_RANKS, {"call": next(calls)}):
            return original(*args, **kwargs)

    torch.distributed.distributed_c10d.init_process_group = torch.distributed.init_process_group


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
