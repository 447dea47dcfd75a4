"""Spark on YARN by spark-submit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dlobd.schedulers.base import Command, Target
from dlobd.schema import Experiment

JVM_LOG = "-Xlog:gc+init=info,gc=info,gc+heap+exit=info:file={file}:timenanos,tags"
"""The JVM's own log with System.nanoTime stamps: its first line is the JVM's start, its last the exit."""

DRIVER_MEMORY_MB = 512
AM_MEMORY_MB = 512
MIN_OVERHEAD_MB = 384
"""Spark's own minimum of memory beside a JVM's heap: spark.yarn.am.memoryOverhead, spark.driver.memoryOverhead."""


class YarnScheduler:
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
        """The spark-submit line. Everything that Spark's defaults already say is left out."""
        import pyspark

        home = Path(pyspark.__file__).parent
        container_log = JVM_LOG.format(file="<LOG_DIR>/jvm.log")
        conf = {
            # a fixed number of executors, all of them before the first job
            "spark.dynamicAllocation.enabled": "false",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.executor.memoryOverhead": f"{experiment.executor_overhead_mb}m",
            # a benchmark shows a failure, it does not repeat it
            "spark.yarn.maxAppAttempts": "1",
            "spark.task.maxFailures": "1",
            "spark.executor.maxNumFailures": "1",
            # one machine: the jars are where pip put them, nothing to upload
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.yarn.submit.file.replication": "1",
            "spark.pyspark.python": sys.executable,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"{target.fs_uri}/spark-events",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.ui.port": "0",
            "spark.executor.extraJavaOptions": container_log,
            **launcher_conf,
        }
        client_log = JVM_LOG.format(file=evidence / "driver-jvm.log") + f" -Djava.io.tmpdir={target.tmp_dir}"
        in_cluster = experiment.deploy_mode == "cluster"
        if in_cluster:
            # the driver's address is its container's: the NodeManager's environment names it
            conf |= {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable}
        else:
            conf |= {
                "spark.driver.host": target.bind_ip,
                "spark.driver.bindAddress": target.bind_ip,
                "spark.yarn.am.memory": f"{AM_MEMORY_MB}m",
                "spark.yarn.am.extraJavaOptions": container_log,
            }
        argv = [
            str(home / "bin" / "spark-submit"),
            *("--master", "yarn", "--deploy-mode", experiment.deploy_mode),
            *("--name", f"dlobd-{experiment.name}"),
            *("--num-executors", str(experiment.workers), "--executor-cores", "1"),
            *("--executor-memory", f"{experiment.executor_memory_mb}m", "--driver-memory", f"{DRIVER_MEMORY_MB}m"),
            *("--driver-java-options", container_log if in_cluster else client_log),
            *(("--files", str(job)) if in_cluster else ()),
        ]
        for key, value in sorted(conf.items()):
            argv += ["--conf", f"{key}={value}"]
        environment = {
            "JAVA_HOME": str(target.java_home),
            "HADOOP_CONF_DIR": str(target.client_conf_dir),
            "YARN_CONF_DIR": str(target.client_conf_dir),
            "SPARK_CONF_DIR": str(target.spark_conf_dir),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": target.bind_ip,
            "TFOS_BIND_IP": target.bind_ip,
            "TFOS_SERVER_HOST": target.bind_ip,
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(target.tmp_dir),
            "SPARK_LOCAL_DIRS": str(target.tmp_dir),
        }
        if in_cluster:
            environment["SPARK_SUBMIT_OPTS"] = client_log
        return Command((*argv, str(script), job.name if in_cluster else str(job)), environment)


def memory_needed_mb(experiment: Experiment) -> int:
    """What the job's processes ask for: driver, ApplicationMaster and executors with their overhead."""
    executor = experiment.executor_memory_mb + experiment.executor_overhead_mb
    return DRIVER_MEMORY_MB + MIN_OVERHEAD_MB + AM_MEMORY_MB + MIN_OVERHEAD_MB + experiment.workers * executor
