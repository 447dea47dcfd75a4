"""Whether a job fits, before anything is started for it."""

from __future__ import annotations

from dlobd.errors import SetupError
from dlobd.experiment.memory import STEP_MB
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.embedded.startup import available_memory_bytes
from dlobd.run import capacity
from dlobd.run.capacity import driver_mb
from dlobd.run.deploy import spark_workers
from dlobd.run.schedulers.yarn import AM_MEMORY_MB, MIN_OVERHEAD_MB
from dlobd.schema import Runnable


def check_memory(experiment: Runnable, settings: ClusterSettings) -> None:
    """Said before anything is started, because YARN would only leave the application in ACCEPTED.

    Raises:
        SetupError: the job asks for more than YARN could give, or than this machine has available.
    """
    if experiment.scheduler == "none":
        return  # such processes have no limit
    if experiment.scheduler == "yarn":
        capacity.check(experiment, embedded(settings))
    parts = asked_mb(experiment)
    free_mb = available_memory_bytes() >> 20
    if sum(parts.values()) > free_mb:
        words = ", ".join(f"{name} {part_mb}" for name, part_mb in parts.items())
        raise SetupError(
            f"The job asks for {sum(parts.values())} MB of memory ({words}); only {free_mb} MB are available.",
            "free memory, or lower workers, executor_memory_mb or executor_overhead_mb with --set",
        )


def embedded(settings: ClusterSettings) -> capacity.Cluster:
    """What the embedded cluster's YARN offers. Its scheduler counts vcores (DominantResourceCalculator of yarn/base),
    and a NodeManager is also the largest container; no container is held to its vcores."""
    node = capacity.Node(settings.nodemanager_memory_mb, settings.nodemanager_vcores)
    return capacity.Cluster([node] * len(settings.nodemanager_hosts), STEP_MB, node)


def asked_mb(experiment: Runnable) -> dict[str, int]:
    """What each part of a job asks for, in MB of heap and overhead together."""
    executor_mb = experiment.executor_memory_mb + experiment.executor_overhead_mb
    parts = {f"{experiment.workers} executors": experiment.workers * executor_mb, "driver": driver_mb(experiment)}
    if experiment.scheduler == "yarn" and experiment.deploy_mode == "client":
        parts["ApplicationMaster"] = AM_MEMORY_MB + MIN_OVERHEAD_MB
    elif experiment.scheduler == "standalone":
        daemons = 1 + min(spark_workers.WORKERS, experiment.workers)
        parts["Master and Workers"] = daemons * (spark_workers.DAEMON_MEMORY_MB + MIN_OVERHEAD_MB)
    return parts
