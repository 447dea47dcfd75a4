"""spark-tensorflow-distributor 1.0.0 as published: Spark's barrier mode, the trainer inside the Python worker.

    task of rank r:  all-gather addresses -> TF_CONFIG -> the trainer's main function

dlobd adds only spans: around the package's import and `MirroredStrategyRunner.run` on the driver, and around each task
and its all-gather. The package has no feed, so ranks read their files themselves. A rank has no process of its own, so
only the job's timeout detects a rank that hangs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.barrier import BARRIER_TIMEOUT_S
from dlobd.job.launchers.base import Main, TrainingFailed, place, role_of
from dlobd.job.launchers.failure import failure_line
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.liveness import watched

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from dlobd.job.description import Job
    from dlobd.job.rank_status import JobStatus


class DistributorLauncher:
    """Launcher of a chief and workers, without a feed."""

    def spark_conf(self) -> dict[str, str]:
        return {
            "spark.python.daemon.module": "dlobd.job.launchers.distributor_daemon",
            "spark.barrier.sync.timeout": str(BARRIER_TIMEOUT_S),  # Spark's default is a year
        }

    def launch(self, sc: SparkContext, main: Main, job: Job, blocks: RDD[bytes] | None, status: JobStatus) -> None:
        if blocks is not None:
            raise ValueError("launcher 'distributor' has no feed; use input = \"read\"")
        with tracing.span(kinds.IMPORT_DISTRIBUTOR):
            from spark_tensorflow_distributor import MirroredStrategyRunner
        with tracing.span(kinds.MIRRORED_STRATEGY_RUNNER):
            # the trainer uses the strategy of its exchange
            runner = MirroredStrategyRunner(
                num_slots=job.workers, use_gpu=job.device == "gpu", use_custom_strategy=True
            )
        program = runner._get_spark_task_program
        runner._get_spark_task_program = lambda function, **arguments: _Task(program(function, **arguments))
        try:
            with watched(sc, status), tracing.span(kinds.BARRIER_JOB):
                runner.run(_run_main, main=main, job=job)
        except Exception as error:
            raise TrainingFailed(failure_line(error, status)) from error
        if failure := status.failure():
            raise TrainingFailed(failure)


class _Task:
    """Wrapper of the distributor's function for one barrier task, which records it as a span."""

    def __init__(self, inner: Callable[[Iterator[int]], list[object]]) -> None:
        self._inner = inner

    def __call__(self, partition: Iterator[int]) -> list[object]:
        from pyspark import TaskContext

        context = TaskContext.get()
        with tracing.span(kinds.BARRIER_TASK, task_attempt=context.taskAttemptId() if context else None):
            return self._inner(partition)


def _run_main(main: Main, job: Job) -> None:
    """Call `main(job, node)` in the Python worker."""
    config = json.loads(os.environ["TF_CONFIG"])
    rank = int(config["task"]["index"])
    tracing.identify(*role_of(rank))
    main(job, place(job, rank, config["cluster"]["worker"], None))
    tracing.flush()


def install() -> None:
    """Record the all-gather of tasks in this process and its forks, without any import."""
    on_import("pyspark.taskcontext", None, _record_all_gather)


def _record_all_gather(module: ModuleType) -> None:
    original = module.BarrierTaskContext.allGather

    def all_gather(context: Any, message: str = "") -> list[str]:
        with tracing.span(kinds.ALL_GATHER_ADDRESSES, address=message):
            addresses: list[str] = original(context, message)
            return addresses

    module.BarrierTaskContext.allGather = all_gather
