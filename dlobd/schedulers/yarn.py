"""Spark on YARN by spark-submit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dlobd.schedulers.base import Command, Target
from dlobd.schedulers.spark_submit import (
    DRIVER_MEMORY_MB,
    JVM_LOG,
    client_jvm_options,
    common_conf,
    driver_address,
    environment,
    spark_home,
)
from dlobd.schema import Experiment

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
        """The spark-submit line."""
        home = spark_home()
        container_log = JVM_LOG.format(file="<LOG_DIR>/jvm.log")
        conf = {
            **common_conf(target, launcher_conf),
            "spark.executor.memoryOverhead": f"{experiment.executor_overhead_mb}m",
            "spark.yarn.maxAppAttempts": "1",
            "spark.executor.maxNumFailures": "1",
            # one machine: the jars are where pip put them, nothing to upload
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.yarn.submit.file.replication": "1",
            "spark.executor.extraJavaOptions": container_log,
        }
        client_log = client_jvm_options(target, evidence)
        in_cluster = experiment.deploy_mode == "cluster"
        if in_cluster:
            # the driver's address is its container's: the NodeManager's environment names it
            conf |= {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable}
        else:
            conf |= {
                **driver_address(target),
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
        variables = environment(target) | {"YARN_CONF_DIR": str(target.client_conf_dir)}
        if in_cluster:
            variables["SPARK_SUBMIT_OPTS"] = client_log
        return Command((*argv, str(script), job.name if in_cluster else str(job)), variables)


def memory_needed_mb(experiment: Experiment) -> int:
    """What the job's processes ask for: driver, ApplicationMaster and executors with their overhead."""
    executor = experiment.executor_memory_mb + experiment.executor_overhead_mb
    return DRIVER_MEMORY_MB + MIN_OVERHEAD_MB + AM_MEMORY_MB + MIN_OVERHEAD_MB + experiment.workers * executor
