"""Spark's own Master and Workers, as processes on this machine: Spark without YARN.

`dlobd.run.deploy.spark_workers` runs them.
"""

from __future__ import annotations

from pathlib import Path

from dlobd.run.schedulers.base import Command, Submission, Target
from dlobd.run.schedulers.spark_submit import on_spark_workers


class StandaloneScheduler:
    """See `dlobd.run.schedulers.base`; `target.master` names the Master."""

    def command(self, submission: Submission, target: Target, evidence: Path) -> Command:
        """The spark-submit line."""
        return on_spark_workers(submission, target, evidence, target.master)
