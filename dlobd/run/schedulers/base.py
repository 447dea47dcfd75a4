"""The scheduler contract, a pure function: `(submission: Submission, target: Target, evidence: Path) -> Command`.

It returns the submit command of a job, which `dlobd.run.submitted_process` runs. `target` is the cluster, or None if
there is none; `evidence` is a local directory for files of the client's JVM.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PackedInstallation:
    """Files that nodes of an external cluster get from HDFS and spark-submit."""

    environment: str  # URI of an archive with its name in containers: hdfs://...#environment; empty: the user's Python
    python: str  # interpreter in containers, relative to their working directories or the user's
    spark_libs: str  # URI of an archive of Spark's jars
    package: Path  # zip of dlobd itself


@dataclass(frozen=True, slots=True)
class Target:
    """Settings that the clients of a job need to reach its cluster."""

    client_conf_dir: Path  # directory of core-site.xml, hdfs-site.xml, yarn-site.xml
    spark_conf_dir: Path  # directory of log4j2.properties with dlobd's evidence
    java_home: Path
    fs_uri: str
    bind_ip: str  # the address that driver, executors and ranks advertise
    tmp_dir: Path  # temporary directory; files of a killed driver are removed with the cluster
    master: str = ""  # address of Spark's own Master; empty without a Master
    spark_home: Path | None = None  # SPARK_HOME with the Workers' files; None: the directory of pip's pyspark
    events_dir: str = "/spark-events"  # directory in HDFS
    packed: PackedInstallation | None = None  # installation for nodes without dlobd


PACKAGES = "packages"
"""Name of the unpacked `Submission.archive` in containers."""


@dataclass(frozen=True, slots=True)
class Command:
    """Command line and the environment variables that it adds."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[Path, str] = field(default_factory=dict)  # to be written before the start


@dataclass(frozen=True, slots=True)
class Submission:
    """Submission of a job, independent of the scheduler."""

    name: str  # name of the application
    deploy_mode: str
    workers: int  # executors; with dynamic allocation the first number of them
    executor_cores: int
    executor_gpus: int
    executor_memory_mb: int
    executor_overhead_mb: int
    conf: Mapping[str, str]  # Spark settings of the launcher
    script: Path
    arguments: tuple[str, ...]
    tag: str  # YARN tag by which the application is found
    files: tuple[Path, ...] = ()  # local files named in `arguments`; a driver in a container gets copies
    logging: Mapping[str, str] = field(default_factory=dict)  # "driver", "master", "executor" -> log4j2's files, if own
    logging_files: tuple[Path, ...] = ()  # local files of `logging` that containers need
    python: str = ""  # the user's interpreter; empty: that of dlobd
    packages: Path | None = None  # directory of packages that the job needs beside those of its Python
    own: bool = False  # a user's own job, without the settings that only a benchmark needs
    dynamic: bool = False  # Spark changes the number of executors
    archive: str = ""  # URI of these packages for containers on other machines: hdfs://...#packages
