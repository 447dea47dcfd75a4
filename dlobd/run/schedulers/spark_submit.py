"""What every spark-submit line of dlobd says, under any scheduler."""

from __future__ import annotations

import os
from pathlib import Path

from dlobd import tracing
from dlobd.paths import plain, python, spark_home
from dlobd.run.schedulers.base import Command, Submission, Target

_JVM_LOG = "-Xlog:{tags}gc+init=info,gc=info,gc+heap+exit=info:file={file}:timenanos,tags {more}"

DRIVER_MEMORY_MB = 512


def jvm_log(file: str | Path) -> str:
    """Options for a JVM's own log with System.nanoTime stamps: how long it took to create itself, its pauses, its exit.
    And log4j says when it begins, on stderr and by the wall clock.

    Without a recorder there is no more than when the JVM began and ended, and no call of an RPC client: what recording
    costs is what all of that costs."""
    if tracing.switched_off():
        return _JVM_LOG.format(tags="", file=file, more="-Drpc.log.level=off")  # of log4j2-spark.properties
    return _JVM_LOG.format(tags="startuptime,", file=file, more="-Dlog4j2.StatusLogger.level=INFO")


def common_conf(target: Target, submission: Submission) -> dict[str, str]:
    """Settings for every scheduler. Everything that Spark's defaults already say is left out."""
    return {
        # a fixed number of executors, all of them before the first job
        "spark.dynamicAllocation.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # where nodes unpack gigabytes first, one may be minutes later than the other
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s" if target.packed else "120s",
        # a benchmark shows a failure, it does not repeat it
        "spark.task.maxFailures": "1",
        "spark.pyspark.python": target.packed.python if target.packed else str(python()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"{target.fs_uri}{target.events_dir}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # on YARN one thread of the driver makes its web pages while another puts a filter before them, and on a busy
        # machine a job in a hundred dies of it (Spark 4.3); nothing of dlobd reads the pages
        "spark.ui.enabled": "false",
        "spark.ui.port": "0",  # if the user sets spark.ui.enabled=true
        **_one_task(submission),
        **submission.conf,
    }


def _one_task(submission: Submission) -> dict[str, str]:
    """An executor runs one task at a time, which has all its cores and GPUs."""
    cores, gpus = submission.executor_cores, submission.executor_gpus
    return {
        **({"spark.task.cpus": str(cores)} if cores > 1 else {}),
        **({f"spark.{whose}.resource.gpu.amount": str(gpus) for whose in ("executor", "task")} if gpus else {}),
    }


def driver_address(target: Target) -> dict[str, str]:
    """Where a driver beside spark-submit listens, and what it advertises."""
    return {"spark.driver.host": target.bind_ip, "spark.driver.bindAddress": target.bind_ip}


def environment(target: Target) -> dict[str, str]:
    """The environment of spark-submit and of all below it."""
    modules = os.environ.get("PYTHONPATH")
    return {
        # the launch script of a container quotes it, but not what may stand in it
        **({"PYTHONPATH": os.pathsep.join(_plain(entry) for entry in modules.split(os.pathsep))} if modules else {}),
        # as the daemons have it: without a locale a JVM opens no file below a directory with letters beyond ASCII
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "JAVA_HOME": str(target.java_home),
        "HADOOP_CONF_DIR": str(target.client_conf_dir),
        "SPARK_CONF_DIR": str(target.spark_conf_dir),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": target.bind_ip,
        "TFOS_BIND_IP": target.bind_ip,
        "TFOS_SERVER_HOST": target.bind_ip,
        "PYSPARK_PYTHON": str(python()),
        "TMPDIR": str(target.tmp_dir),
        "SPARK_LOCAL_DIRS": str(target.tmp_dir),
    }


def _plain(entry: str) -> str:
    return str(plain(Path(entry))) if os.path.isabs(entry) else entry


def client_jvm_options(target: Target, evidence: Path) -> str:
    """Options of the JVM that runs beside dlobd."""
    return jvm_log(evidence / "driver-jvm.log") + f" -Djava.io.tmpdir={target.tmp_dir}"


def on_spark_workers(submission: Submission, target: Target, evidence: Path, master: str) -> Command:
    """spark-submit to Spark's own Master and Workers, whether they are processes or live in the driver's JVM.

    An executor's working directory is its log directory: the Worker keeps it, with stdout and stderr.
    """
    conf = {
        **common_conf(target, submission),
        **driver_address(target),
        "spark.cores.max": str(submission.workers * submission.executor_cores),
        # as settings: spark-submit's own options for these do not reach local-cluster
        "spark.executor.cores": str(submission.executor_cores),
        "spark.executor.memory": f"{submission.executor_memory_mb}m",
        "spark.executor.extraJavaOptions": jvm_log("jvm.log"),
        "spark.executorEnv.LOG_DIRS": ".",
        "spark.executorEnv.SPARK_LOCAL_IP": target.bind_ip,
        "spark.executorEnv.TFOS_BIND_IP": target.bind_ip,
    }
    argv = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", master),
        *("--name", submission.name, "--driver-memory", f"{DRIVER_MEMORY_MB}m"),
        *("--driver-java-options", client_jvm_options(target, evidence)),
    ]
    for key, value in sorted(conf.items()):
        argv += ["--conf", f"{key}={value}"]
    home = {"SPARK_HOME": str(target.spark_home)} if target.spark_home else {}
    return Command((*argv, str(submission.script), *submission.arguments), environment(target) | home)
