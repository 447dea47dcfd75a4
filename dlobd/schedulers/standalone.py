"""Spark's own Master and Workers, as processes on this machine: Spark without YARN. `dlobd.cluster.standalone` runs
them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlobd.schedulers.base import Command, Target
from dlobd.schedulers.spark_submit import on_spark_workers
from dlobd.schema import Experiment


class StandaloneScheduler:
    """See `dlobd.schedulers.base`; `target.master` names the Master."""

    def command(
        self,
        experiment: Experiment,
        target: Target,
        launcher_conf: Mapping[str, str],
        evidence: Path,
        script: Path,
        job: Path,
    ) -> Command:
        """The spark-submit line."""
        return on_spark_workers(experiment, target, launcher_conf, evidence, script, job, target.master)
