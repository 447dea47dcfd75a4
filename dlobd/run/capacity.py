"""Whether a job fits on YARN's nodes as they are when they are idle. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlobd.axes import LAUNCHERS
from dlobd.errors import SetupError
from dlobd.experiment import spark_submit_line
from dlobd.run.schedulers.spark_submit import DRIVER_MEMORY_MB
from dlobd.run.schedulers.yarn import AM_MEMORY_MB, MIN_OVERHEAD_MB
from dlobd.schema import Experiment, Runnable

EXECUTOR_CORES = "spark.executor.cores"

REMEDY = "lower executor_memory_mb, executor_overhead_mb or executor_cores with --set"


@dataclass(frozen=True, slots=True)
class Node:
    """What a NodeManager offers to containers; `vcores` is None where YARN does not count them."""

    memory_mb: int
    vcores: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """What YARN offers to one job.

    Args:
        minimum_allocation_mb: containers are multiples of it (yarn.scheduler.minimum-allocation-mb).
        maximum_allocation: the largest one (yarn.scheduler.maximum-allocation-mb and -vcores).
    """

    nodes: Sequence[Node]
    minimum_allocation_mb: int
    maximum_allocation: Node

    def rounded(self, container_mb: int) -> int:
        """The size that a container gets."""
        return -(-container_mb // self.minimum_allocation_mb) * self.minimum_allocation_mb


def driver_mb(experiment: Runnable) -> int:
    """What the driver asks for, heap and overhead."""
    overhead = LAUNCHERS.get(experiment.launcher)().spark_conf().get("spark.driver.memoryOverhead")
    return DRIVER_MEMORY_MB + (int(overhead.removesuffix("m")) if overhead else MIN_OVERHEAD_MB)


def cores_of(experiment: Runnable) -> int:
    """Cores of an executor; of the user's own script as its options say, else Spark's default on YARN."""
    if isinstance(experiment, Experiment):
        return experiment.executor_cores
    said = spark_submit_line.parse(("spark-submit", *experiment.options, "script")).settings.get(EXECUTOR_CORES, "1")
    return int(said) if said.isdecimal() else 1  # what is no number Spark refuses itself


def gpus_of(experiment: Runnable) -> int:
    """GPUs of an executor; those of the user's own script are in its own options."""
    return int(isinstance(experiment, Experiment) and experiment.device == "gpu")


def check(experiment: Runnable, cluster: Cluster) -> None:
    """Said before anything is started: YARN would refuse it, or leave the application in ACCEPTED.

    Raises:
        SetupError: the job asks for more than YARN could ever give.
    """
    executor_mb = cluster.rounded(experiment.executor_memory_mb + experiment.executor_overhead_mb)
    cores, largest = cores_of(experiment), cluster.maximum_allocation
    asked = f"{experiment.executor_memory_mb} + {experiment.executor_overhead_mb} MB"
    if executor_mb > largest.memory_mb:
        raise SetupError(
            f"An executor needs a container of {asked}, but YARN allows at most {largest.memory_mb} MB.", REMEDY
        )
    if largest.vcores is not None and cores > largest.vcores:
        raise SetupError(
            f"An executor needs a container of {cores} vcores, but YARN allows at most {largest.vcores}.", REMEDY
        )
    found = room(experiment, cluster)
    if experiment.workers > found:
        raise SetupError(
            f"{experiment.workers} executors of {asked} and {_cores(cores)} do not fit on {_nodes(cluster.nodes)} "
            f"next to the ApplicationMaster of {_master_mb(experiment, cluster)} MB: there is room for {found}.",
            f"lower workers, or {REMEDY}",
        )


def room(experiment: Runnable, cluster: Cluster) -> int:
    """How many executors fit, with the ApplicationMaster of one vcore where it leaves most room for them."""
    executor_mb = cluster.rounded(experiment.executor_memory_mb + experiment.executor_overhead_mb)
    cores, master_mb = cores_of(experiment), _master_mb(experiment, cluster)
    fit = [_fit(node, executor_mb, cores) for node in cluster.nodes]
    beside = [
        sum(fit) - full + _fit(left, executor_mb, cores)
        for node, full in zip(cluster.nodes, fit, strict=True)
        if (left := Node(node.memory_mb - master_mb, node.vcores and node.vcores - 1)).memory_mb >= 0
    ]
    return max(beside, default=0)


def _master_mb(experiment: Runnable, cluster: Cluster) -> int:
    """The ApplicationMaster's container; in cluster mode the driver lives in it."""
    in_container = experiment.deploy_mode == "cluster"
    return cluster.rounded(driver_mb(experiment) if in_container else AM_MEMORY_MB + MIN_OVERHEAD_MB)


def _fit(node: Node, executor_mb: int, cores: int) -> int:
    by_memory = node.memory_mb // executor_mb
    return by_memory if node.vcores is None else max(0, min(by_memory, node.vcores // cores))


def _cores(cores: int) -> str:
    return f"{cores} vcore{'s' if cores > 1 else ''}"


def _nodes(nodes: Sequence[Node]) -> str:
    """How many, and of what: one size, or the smallest and the largest."""

    def span(values: Sequence[int]) -> str:
        return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"

    if not nodes:
        return "0 NodeManagers"
    vcores = [node.vcores for node in nodes if node.vcores is not None]
    counted = f" and {span(vcores)} vcores" if vcores else ""
    return f"{len(nodes)} NodeManagers of {span([node.memory_mb for node in nodes])} MB{counted}"
