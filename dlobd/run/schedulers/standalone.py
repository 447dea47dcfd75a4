"""Spark's own Master and Workers, as processes on this machine: Spark without YARN.

`dlobd.run.place.standalone` runs them.
"""

from __future__ import annotations

from pathlib import Path

from dlobd.run.schedulers.base import Command, Submission, Target
from dlobd.run.schedulers.spark_submit import on_spark_workers

DAEMON_MEMORY_MB = 256
"""Heap of a Master or Worker."""

MAX_WORKERS = 2
"""A Worker runs several executors, so that more of them would only cost memory."""


class StandaloneScheduler:
    """The scheduler contract for Spark's own Master; `target.master` is its address."""

    def command(self, submission: Submission, target: Target, evidence: Path) -> Command:
        """Returns the spark-submit line."""
        return on_spark_workers(submission, target, evidence, target.master)
