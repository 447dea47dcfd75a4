"""The scheduler contract: from a job to the command that submits it. Pure; `dlobd.run.submit` runs the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PackedInstallation:
    """What the nodes of an external cluster get from HDFS, and from spark-submit."""

    environment: str  # URI of an archive, with the name under which containers see it: hdfs://...#environment
    python: str  # of containers, relative to their working directories
    spark_libs: str  # URI of an archive of Spark's jars
    package: Path  # dlobd itself


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
    events_dir: str = "/spark-events"  # in HDFS
    packed: PackedInstallation | None = None  # for nodes without dlobd installed


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and what it adds to the environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Submission:
    """What is submitted, under any scheduler."""

    name: str  # the application's
    deploy_mode: str
    workers: int  # executors, which run one task each
    executor_cores: int
    executor_gpus: int
    executor_memory_mb: int
    executor_overhead_mb: int
    conf: Mapping[str, str]  # what the launcher wants Spark to be told
    script: Path
    arguments: tuple[str, ...]
    tag: str  # by which YARN finds the application again
    files: tuple[Path, ...] = ()  # local files that arguments name: a driver in a container finds them beside itself


class Scheduler(Protocol):
    """One way to get executors."""

    def command(self, submission: Submission, target: Target | None, evidence: Path) -> Command:
        """The submit command.

        Args:
            target: None where there is no cluster.
            evidence: local directory for what the client-side JVM writes.
        """
