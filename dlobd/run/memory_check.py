"""Whether a job fits, before anything is started for it."""

from __future__ import annotations

from dlobd.axes import LAUNCHERS
from dlobd.errors import SetupError
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.embedded.startup import available_memory_bytes
from dlobd.run.deploy import spark_workers
from dlobd.run.schedulers.spark_submit import DRIVER_MEMORY_MB
from dlobd.run.schedulers.yarn import AM_MEMORY_MB, MIN_OVERHEAD_MB
from dlobd.schema import Runnable

YARN_STEP_MB = 128
"""Containers are multiples of it: yarn.scheduler.minimum-allocation-mb of yarn/base."""


def check_memory(experiment: Runnable, settings: ClusterSettings) -> None:
    """Said before anything is started, because YARN would only leave the application in ACCEPTED.

    Raises:
        SetupError: the job asks for more than YARN could give, or than this machine has available.
    """
    if experiment.scheduler == "none":
        return  # such processes have no limit
    if experiment.scheduler == "yarn":
        _check_containers(experiment, settings.nodemanager_memory_mb, len(settings.nodemanager_hosts))
    parts = asked_mb(experiment)
    free_mb = available_memory_bytes() >> 20
    if sum(parts.values()) > free_mb:
        words = ", ".join(f"{name} {part_mb}" for name, part_mb in parts.items())
        raise SetupError(
            f"The job asks for {sum(parts.values())} MB of memory ({words}); only {free_mb} MB are available.",
            "free memory, or lower workers, executor_memory_mb or executor_overhead_mb with --set",
        )


def asked_mb(experiment: Runnable) -> dict[str, int]:
    """What each part of a job asks for, in MB of heap and overhead together."""
    executor_mb = experiment.executor_memory_mb + experiment.executor_overhead_mb
    parts = {f"{experiment.workers} executors": experiment.workers * executor_mb, "driver": _driver_mb(experiment)}
    if experiment.scheduler == "yarn" and experiment.deploy_mode == "client":
        parts["ApplicationMaster"] = AM_MEMORY_MB + MIN_OVERHEAD_MB
    elif experiment.scheduler == "standalone":
        daemons = 1 + min(spark_workers.WORKERS, experiment.workers)
        parts["Master and Workers"] = daemons * (spark_workers.DAEMON_MEMORY_MB + MIN_OVERHEAD_MB)
    return parts


def _driver_mb(experiment: Runnable) -> int:
    overhead = LAUNCHERS.get(experiment.launcher)().spark_conf().get("spark.driver.memoryOverhead")
    return DRIVER_MEMORY_MB + (int(overhead.removesuffix("m")) if overhead else MIN_OVERHEAD_MB)


def _check_containers(experiment: Runnable, node_mb: int, nodes: int) -> None:
    """Refuses what YARN could never give. A NodeManager's `node_mb` is also the largest container."""

    def rounded(container_mb: int) -> int:
        return -(-container_mb // YARN_STEP_MB) * YARN_STEP_MB

    executor_mb = rounded(experiment.executor_memory_mb + experiment.executor_overhead_mb)
    asked = f"{experiment.executor_memory_mb} + {experiment.executor_overhead_mb} MB"
    remedy = "lower executor_memory_mb or executor_overhead_mb with --set"
    if executor_mb > node_mb:
        raise SetupError(f"An executor needs a container of {asked}, but YARN allows at most {node_mb} MB.", remedy)
    in_container = experiment.deploy_mode == "cluster"  # then the driver lives in the ApplicationMaster's
    am_mb = rounded(_driver_mb(experiment) if in_container else AM_MEMORY_MB + MIN_OVERHEAD_MB)
    room = (node_mb - am_mb) // executor_mb + (nodes - 1) * (node_mb // executor_mb)
    if experiment.workers > room:
        raise SetupError(
            f"{experiment.workers} executors of {asked} do not fit on {nodes} NodeManagers of {node_mb} MB next to "
            f"the ApplicationMaster of {am_mb} MB: there is room for {room}.",
            f"lower workers, or {remedy}",
        )
