"""Checks that a YARN cluster or this machine can meet an experiment's demand of memory, cores and GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlobd.axes import LAUNCHERS
from dlobd.errors import SetupError
from dlobd.experiment import spark_submit_line
from dlobd.experiment.files import STEP_MB
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.job.device_config import VISIBLE, visible_gpus
from dlobd.memory import available_memory_bytes
from dlobd.run.schedulers.spark_submit import DRIVER_MEMORY_MB
from dlobd.run.schedulers.standalone import DAEMON_MEMORY_MB, MAX_WORKERS
from dlobd.run.schedulers.yarn import AM_MEMORY_MB, MIN_OVERHEAD_MB
from dlobd.schema import Experiment, Runnable

EXECUTOR_CORES = "spark.executor.cores"

SMALLER = "lower executor_memory_mb, executor_overhead_mb or executor_cores with --set"
ON_CPU = "--set device=cpu"


@dataclass(frozen=True, slots=True)
class Node:
    """Resources that a NodeManager offers to containers; `vcores` is None if YARN does not count them."""

    memory_mb: int
    vcores: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """Resources that YARN offers to one job."""

    nodes: Sequence[Node]
    minimum_allocation_mb: int  # containers are multiples of it (yarn.scheduler.minimum-allocation-mb)
    maximum_allocation: Node  # the largest container (yarn.scheduler.maximum-allocation-mb and -vcores)

    def rounded(self, container_mb: int) -> int:
        """Return the size of the container that YARN grants for a request."""
        return -(-container_mb // self.minimum_allocation_mb) * self.minimum_allocation_mb


# ---- demand


def driver_mb(experiment: Runnable) -> int:
    """Return the memory of the driver, heap and overhead."""
    overhead = LAUNCHERS.get(experiment.launcher)().spark_conf().get("spark.driver.memoryOverhead")
    return DRIVER_MEMORY_MB + (int(overhead.removesuffix("m")) if overhead else MIN_OVERHEAD_MB)


def cores_of(experiment: Runnable) -> int:
    """Return the cores of an executor. A user's own script sets them by its options; Spark's default on YARN is 1."""
    if isinstance(experiment, Experiment):
        return experiment.executor_cores
    line = spark_submit_line.parse(("spark-submit", *experiment.options, "script"))
    cores = line.settings.get(EXECUTOR_CORES, "1")
    return int(cores) if cores.isdecimal() else 1  # Spark itself rejects a value that is not a number


def gpus_of(experiment: Runnable) -> int:
    """Return the GPUs of an executor. A user's own script requests GPUs by its options."""
    return int(isinstance(experiment, Experiment) and experiment.device == "gpu")


def demand_mb(experiment: Runnable) -> dict[str, int]:
    """Return the memory of each part of a job in MB, heap and overhead together."""
    executor_mb = experiment.executor_memory_mb + experiment.executor_overhead_mb
    parts = {f"{experiment.workers} executors": experiment.workers * executor_mb, "driver": driver_mb(experiment)}
    if experiment.scheduler == "yarn" and experiment.deploy_mode == "client":
        parts["ApplicationMaster"] = AM_MEMORY_MB + MIN_OVERHEAD_MB
    elif experiment.scheduler == "standalone":
        daemons = 1 + min(MAX_WORKERS, experiment.workers)
        parts["Master and Workers"] = daemons * (DAEMON_MEMORY_MB + MIN_OVERHEAD_MB)
    return parts


# ---- YARN


def embedded(settings: ClusterSettings) -> Cluster:
    """Return the resources of the embedded cluster's YARN. Its scheduler counts vcores (DominantResourceCalculator in
    yarn/base), and one container may fill a NodeManager; nothing limits a container to its vcores."""
    node = Node(settings.nodemanager_memory_mb, settings.nodemanager_vcores)
    return Cluster([node] * len(settings.nodemanager_hosts), STEP_MB, node)


def check_yarn(experiment: Runnable, cluster: Cluster) -> None:
    """Check that an idle cluster can hold the job; otherwise YARN would leave the application in ACCEPTED without a
    reason. Raises SetupError if the job needs more than the idle cluster has."""
    executor_mb = cluster.rounded(experiment.executor_memory_mb + experiment.executor_overhead_mb)
    cores, largest = cores_of(experiment), cluster.maximum_allocation
    asked = f"{experiment.executor_memory_mb} + {experiment.executor_overhead_mb} MB"
    if executor_mb > largest.memory_mb:
        raise SetupError(f"An executor needs a container of {asked}, but YARN allows {largest.memory_mb} MB.", SMALLER)
    if largest.vcores is not None and cores > largest.vcores:
        raise SetupError(f"An executor needs a container of {cores} vcores, but YARN allows {largest.vcores}.", SMALLER)
    fitting = room(experiment, cluster)
    if experiment.workers > fitting:
        raise SetupError(
            f"{experiment.workers} executors of {asked} and {cores} vcore{'s' * (cores > 1)} do not fit. "
            f"On {_nodes(cluster.nodes)}, there is room for {fitting} "
            f"beside the ApplicationMaster's {_master_mb(experiment, cluster)} MB.",
            f"--set workers={fitting}, or {SMALLER}" if fitting else SMALLER,
        )


def room(experiment: Runnable, cluster: Cluster) -> int:
    """Return the number of executors that fit beside the ApplicationMaster (one vcore) on the best node for it."""
    executor_mb = cluster.rounded(experiment.executor_memory_mb + experiment.executor_overhead_mb)
    cores, master_mb = cores_of(experiment), _master_mb(experiment, cluster)
    fitting = [_fit(node, executor_mb, cores) for node in cluster.nodes]
    with_master = [
        sum(fitting) - full + _fit(left, executor_mb, cores)
        for node, full in zip(cluster.nodes, fitting, strict=True)
        if (left := Node(node.memory_mb - master_mb, node.vcores and node.vcores - 1)).memory_mb >= 0
    ]
    return max(with_master, default=0)


def _master_mb(experiment: Runnable, cluster: Cluster) -> int:
    # in cluster mode the driver runs in the ApplicationMaster's container
    in_container = experiment.deploy_mode == "cluster"
    return cluster.rounded(driver_mb(experiment) if in_container else AM_MEMORY_MB + MIN_OVERHEAD_MB)


def _fit(node: Node, executor_mb: int, cores: int) -> int:
    by_memory = node.memory_mb // executor_mb
    return by_memory if node.vcores is None else max(0, min(by_memory, node.vcores // cores))


def _nodes(nodes: Sequence[Node]) -> str:
    def span(values: Sequence[int]) -> str:
        return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"

    if not nodes:
        return "0 NodeManagers"
    vcores = [node.vcores for node in nodes if node.vcores is not None]
    counted = f" and {span(vcores)} vcores" if vcores else ""
    return f"{len(nodes)} NodeManagers of {span([node.memory_mb for node in nodes])} MB{counted}"


# ---- this machine


def check_memory(experiment: Runnable, settings: ClusterSettings) -> None:
    """Check that the embedded YARN and the memory of this machine suffice. Raises SetupError if they do not."""
    if experiment.scheduler == "none":
        return  # plain processes have no limit
    if experiment.scheduler == "yarn":
        check_yarn(experiment, embedded(settings))
    parts = demand_mb(experiment)
    free_mb = available_memory_bytes() >> 20
    if sum(parts.values()) > free_mb:
        words = ", ".join(f"{name} {part_mb}" for name, part_mb in parts.items())
        raise SetupError(
            f"The job asks for {sum(parts.values())} MB of memory ({words}); only {free_mb} MB are available.",
            "free memory, or lower workers, executor_memory_mb or executor_overhead_mb with --set",
        )


def gpus_here() -> int:
    """Return the number of NVIDIA GPUs that dlobd may use here, according to NVML and CUDA_VISIBLE_DEVICES."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0  # no driver, or no device
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
    visible = visible_gpus()
    return count if visible is None else min(count, len(visible))


def check_gpus(experiment: Runnable) -> None:
    """Check that this machine has the GPUs of an experiment that runs here.
    Raises SetupError if it has too few, or the scheduler cannot assign GPUs."""
    wanted = experiment.workers * gpus_of(experiment)
    if not wanted:
        return
    count = gpus_here()
    if not count:
        hidden = f", and {VISIBLE} names no GPU" if visible_gpus() == [] else ""
        raise SetupError(f"device gpu: no NVIDIA GPU was found on this machine{hidden}.", ON_CPU)
    if experiment.scheduler == "yarn":
        raise SetupError(
            "device gpu: the embedded cluster's YARN has no resource type yarn.io/gpu.",
            f"use --hadoop-conf of a cluster with yarn.io/gpu, --set scheduler=standalone, or {ON_CPU}",
        )
    if wanted > count:
        raise SetupError(
            f"{experiment.workers} workers need {experiment.workers} GPUs, but this machine has {count}.",
            "lower workers",
        )
