"""Spark without YARN: Spark's own Master and Workers, as processes (standalone) or in the driver's JVM (local-cluster).

`dlobd.run.place.standalone` runs the processes. For local-cluster no process is started before the job, and none
remains after it. It is the smallest environment in which executors run as on a cluster.
"""

from pathlib import Path

from dlobd.bundle.files import SPARK_LOG
from dlobd.hadoop import spark_logging
from dlobd.paths import spark_home
from dlobd.run.schedulers.base import Command, Submission, Target
from dlobd.run.schedulers.spark_submit import (
    DRIVER_MEMORY_MB,
    client_jvm_options,
    common_conf,
    driver_address,
    environment,
    jvm_options,
)

DAEMON_MEMORY_MB = 256
"""Heap of a Master or Worker."""

MAX_WORKERS = 2
"""Maximum number of Workers. A Worker runs several executors, so more Workers would only use memory."""


def standalone(submission: Submission, target: Target, evidence: Path) -> Command:
    """Return the submit command for a Master at `target.master`."""
    return _command(submission, target, evidence, target.master)


def local_cluster(submission: Submission, target: Target, evidence: Path) -> Command:
    """Return the submit command for a Master in the driver's JVM, with one Worker per executor."""
    master = f"local-cluster[{submission.workers},{submission.executor_cores},{submission.executor_memory_mb}]"
    return _command(submission, target, evidence, master)


def _command(submission: Submission, target: Target, evidence: Path, master: str) -> Command:
    """Return the spark-submit line for a Master at `master`, which may run in the driver's JVM.

    An executor's working directory is also its log directory, which the Worker keeps.
    """
    own = target.spark_conf_dir / spark_logging.CONFIGURATION
    log4j2 = submission.logging.get("executor", str(own))
    conf = {
        **common_conf(target, submission),
        **driver_address(target),
        "spark.cores.max": str(submission.workers * submission.executor_cores),
        # given as settings, because the equivalent options of spark-submit have no effect on local-cluster
        "spark.executor.cores": str(submission.executor_cores),
        "spark.executor.memory": f"{submission.executor_memory_mb}m",
        "spark.executor.extraJavaOptions": jvm_options("jvm.log", SPARK_LOG, log4j2),
        "spark.executorEnv.LOG_DIRS": ".",
        "spark.executorEnv.SPARK_LOCAL_IP": target.bind_ip,
        "spark.executorEnv.TFOS_BIND_IP": target.bind_ip,
    }
    argv = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", master),
        *("--name", submission.name, "--driver-memory", f"{DRIVER_MEMORY_MB}m"),
        *("--driver-java-options", client_jvm_options(target, evidence, submission.logging.get("driver"))),
    ]
    for key, value in sorted(conf.items()):
        argv += ["--conf", f"{key}={value}"]
    home = {"SPARK_HOME": str(target.spark_home)} if target.spark_home else {}
    return Command((*argv, str(submission.script), *submission.arguments), environment(target, submission) | home)
