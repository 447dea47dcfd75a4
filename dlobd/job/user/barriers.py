"""Records the barriers of a user's barrier tasks, in Python workers."""

from collections import Counter
from types import ModuleType
from typing import Any
from zlib import crc32

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos_compat import Function, replace


def install() -> None:
    """Record the barriers of this process and its forks, without an import."""
    on_import("pyspark.taskcontext", None, _record)


def _record(module: ModuleType) -> None:
    calls = Counter[str]()

    def wait(original: Function, self: Any, *args: object, **kwargs: object) -> object:
        # the same for all tasks of a stage, and for no other stage of this or another application
        stage = f"{[info.address for info in self.getTaskInfos()]}/{self.stageId()}"
        calls[stage] += 1
        with tracing.span(kinds.BARRIER, {"call": crc32(f"{stage}/{calls[stage]}".encode())}):
            return original(self, *args, **kwargs)

    for name in ("barrier", "allGather"):
        replace(module.BarrierTaskContext, name)(wait)
