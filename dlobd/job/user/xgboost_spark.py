"""Records xgboost.spark in the Python worker of each barrier task: rendezvous, building of the data, boosting rounds.

A worker trains between the start and the end of XGBoost's communicator, as rank of its partition.
"""

from contextlib import ExitStack
from functools import partial
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.base import recorded_reads, role_of
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos_compat import Function, replace
from dlobd.job.user import steps


def install() -> None:
    """Record XGBoost in this process and its forks, without an import."""
    on_import("xgboost", kinds.IMPORT_XGBOOST, lambda module: steps.attempt(_record, module))
    on_import("xgboost.spark.data", None, lambda module: steps.attempt(_record_data, module))


def _record(xgboost: Any) -> None:
    from pyspark import BarrierTaskContext, TaskContext

    context = xgboost.collective.CommunicatorContext

    @replace(context, "__enter__")
    def enter(original: Function, self: Any) -> object:
        if "dmlc_task_id" not in self.args or not isinstance(TaskContext.get(), BarrierTaskContext):
            return original(self)
        role, index = role_of(int(self.args["dmlc_task_id"]))
        stack = self._dlobd = ExitStack()
        stack.enter_context(tracing.span(kinds.TRAINER, role=role, index=index, in_task=True))
        stack.enter_context(steps.main_function())
        # all members connect to the same tracker
        with tracing.span(kinds.JOIN_RANKS, {"call": int(self.args.get("dmlc_tracker_port", 0))}):
            return original(self)

    @replace(context, "__exit__")
    def leave(original: Function, self: Any, *error: object) -> object:
        try:
            return original(self, *error)
        finally:
            if stack := self.__dict__.pop("_dlobd", None):
                stack.close()

    for name, attrs in (("update", {"trains": True, "function": 1}), ("eval_set", {})):
        steps.record_method(xgboost.core.Booster, name, partial(tracing.span, kinds.CALL, None, name, **attrs))


def _record_data(module: Any) -> None:
    @replace(module, "create_dmatrix_from_partitions")
    def create(original: Function, *args: Any, **kwargs: Any) -> object:
        if steps.elsewhere() or "iterator" not in kwargs:
            return original(*args, **kwargs)
        with steps.Outermost(tracing.span(kinds.BUILD_DMATRIX)):
            return original(*args, **{**kwargs, "iterator": recorded_reads(kwargs["iterator"], kinds.READ_ROWS)})
