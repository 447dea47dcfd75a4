"""Master and Workers inside the driver's JVM, executors as processes of their own: Spark's way to test itself.

Nothing is started before the job and nothing is left after it; the least that is a cluster to an executor.
"""

from __future__ import annotations

from pathlib import Path

from dlobd.run.schedulers.base import Command, Submission, Target
from dlobd.run.schedulers.spark_submit import on_spark_workers


class LocalClusterScheduler:
    """See `dlobd.run.schedulers.base`."""

    def command(self, submission: Submission, target: Target, evidence: Path) -> Command:
        """The spark-submit line: one Worker an executor, each with its cores."""
        master = f"local-cluster[{submission.workers},{submission.executor_cores},{submission.executor_memory_mb}]"
        return on_spark_workers(submission, target, evidence, master)
