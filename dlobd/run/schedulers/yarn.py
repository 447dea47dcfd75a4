"""Spark on YARN by spark-submit."""

import os
from pathlib import Path

from dlobd.bundle.files import SPARK_LOG
from dlobd.experiment.spark_submit_line import FORCED
from dlobd.hadoop import spark_logging
from dlobd.paths import plain, python, shipped, spark_home
from dlobd.run.schedulers.base import Command, Submission, Target
from dlobd.run.schedulers.spark_submit import (
    DRIVER_MEMORY_MB,
    MODULES,
    client_jvm_options,
    common_conf,
    driver_address,
    environment,
    jvm_options,
)

AM_MEMORY_MB = 512
MIN_OVERHEAD_MB = 384
"""Spark's minimum memory overhead of a JVM: spark.yarn.am.memoryOverhead, spark.driver.memoryOverhead."""

GPUS = "gpus.sh"
"""Script of jobs/ that reports the GPUs of an executor's container. YARN copies it there."""


def command(submission: Submission, target: Target, evidence: Path) -> Command:
    """Return the submit command for YARN."""
    home = spark_home()

    def container_log(role: str) -> str:
        log4j2 = submission.logging.get(role, f"__spark_conf__/{spark_logging.CONFIGURATION}")
        return jvm_options("<LOG_DIR>/jvm.log", f"<LOG_DIR>/{SPARK_LOG}", log4j2)

    conf = {
        **common_conf(target, submission),
        "spark.executor.memoryOverhead": f"{submission.executor_overhead_mb}m",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.tags": submission.tag,
        **({} if submission.own else {"spark.executor.maxNumFailures": "1"}),
        "spark.executor.extraJavaOptions": container_log("executor"),
        **({"spark.executor.resource.gpu.discoveryScript": f"./{GPUS}"} if submission.executor_gpus else {}),
        **_installation(target, submission),
    }
    in_cluster = submission.deploy_mode == "cluster"
    client_log = client_jvm_options(target, evidence, None if in_cluster else submission.logging.get("driver"))
    if in_cluster:
        # the environment from the NodeManager contains the driver's address
        conf |= {
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": conf["spark.pyspark.python"],
            **FORCED,
            **({"spark.yarn.appMasterEnv.PYTHONPATH": conf[MODULES]} if MODULES in conf else {}),
        }
    else:
        conf |= {
            **driver_address(target),
            **({"spark.pyspark.driver.python": str(python(submission.python))} if target.packed else {}),
            "spark.yarn.am.memory": f"{AM_MEMORY_MB}m",
            "spark.yarn.am.extraJavaOptions": container_log("master"),
        }
    files = [
        *(submission.files if in_cluster else ()),
        *submission.logging_files,
        *((plain(shipped("jobs")) / GPUS,) if submission.executor_gpus else ()),
    ]
    argv = [
        str(home / "bin" / "spark-submit"),
        *("--master", "yarn", "--deploy-mode", submission.deploy_mode),
        *("--name", submission.name),
        *(() if submission.dynamic else ("--num-executors", str(submission.workers))),
        *("--executor-cores", str(submission.executor_cores)),
        *("--executor-memory", f"{submission.executor_memory_mb}m", "--driver-memory", f"{DRIVER_MEMORY_MB}m"),
        *("--driver-java-options", container_log("driver") if in_cluster else client_log),
        *(("--py-files", _uri(target.packed.package)) if target.packed else ()),
        *(("--files", ",".join(map(_uri, files))) if files else ()),
    ]
    for key, value in sorted(conf.items()):
        argv += ["--conf", f"{key}={value}"]
    variables = environment(target, submission) | {"YARN_CONF_DIR": str(target.client_conf_dir)}
    if in_cluster:
        users = os.environ.get("SPARK_SUBMIT_OPTS", "")
        variables["SPARK_SUBMIT_OPTS"] = f"{users} {client_log}".lstrip()
    arguments = submission.arguments
    if in_cluster:
        beside = {str(file): file.name for file in submission.files}
        arguments = tuple(beside.get(word, word) for word in arguments)
    return Command((*argv, str(submission.script), *arguments), variables)


def _uri(file: Path) -> str:
    """Return a URI, because spark-submit resolves links in paths and splits them at commas."""
    return (plain(file.parent) / file.name).as_uri() if file.is_absolute() else str(file)  # a plan has <bundle>/...


def _installation(target: Target, submission: Submission) -> dict[str, str]:
    archives = ",".join(filter(None, [target.packed.environment if target.packed else "", submission.archive]))
    sent = {"spark.yarn.dist.archives": archives} if archives else {}
    if target.packed is None:
        # every node has the file at the same path: nothing to upload
        return {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.submit.file.replication": "1",
            **sent,
        }
    return {"spark.yarn.archive": target.packed.spark_libs, **sent}
