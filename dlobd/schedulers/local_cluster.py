"""Master and Workers inside the driver's JVM, executors as processes of their own: Spark's way to test itself.

Nothing is started before the job and nothing is left after it; the least that is a cluster to an executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlobd.schedulers.base import Command, Target
from dlobd.schedulers.spark_submit import on_spark_workers
from dlobd.schema import Experiment


class LocalClusterScheduler:
    """See `dlobd.schedulers.base`."""

    def command(
        self,
        experiment: Experiment,
        target: Target,
        launcher_conf: Mapping[str, str],
        evidence: Path,
        script: Path,
        job: Path,
    ) -> Command:
        """The spark-submit line: one Worker an executor, each with one core."""
        master = f"local-cluster[{experiment.workers},1,{experiment.executor_memory_mb}]"
        return on_spark_workers(experiment, target, launcher_conf, evidence, script, job, master)
