"""The scheduler contract: from a job to the command that submits it. Pure; `dlobd.submit` runs the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dlobd.schema import Experiment


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster a job is sent to, as its clients see it."""

    client_conf_dir: Path  # core-site.xml, hdfs-site.xml, yarn-site.xml
    spark_conf_dir: Path  # log4j2.properties with %nano stamps
    java_home: Path
    fs_uri: str
    bind_ip: str  # the address that driver, executors and ranks advertise
    tmp_dir: Path  # what a killed driver leaves there goes with the cluster
    master: str = ""  # of Spark's own Master, where there is one
    spark_home: Path | None = None  # where Workers keep their work; None: pip's own


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and what it adds to the environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class Scheduler(Protocol):
    """One way to get executors."""

    def command(
        self,
        experiment: Experiment,
        target: Target,
        launcher_conf: Mapping[str, str],
        evidence: Path,
        script: Path,
        job: Path,
    ) -> Command:
        """The submit command.

        Args:
            launcher_conf: what the launcher wants Spark to be told.
            evidence: local directory for what the client-side JVM writes.
            script, job: the spark-submit entry script and its one argument.
        """
