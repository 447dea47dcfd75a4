"""Settings and options of every spark-submit line of dlobd, for any scheduler."""

import os
import shlex
from pathlib import Path

from dlobd import tracing
from dlobd.bundle import files
from dlobd.hadoop import spark_logging
from dlobd.paths import modules_dir, plain, python, spark_home
from dlobd.run.schedulers.base import PACKAGES, Submission, Target

_JVM_LOG = "-Xlog:{tags}gc+init=info,gc=info,gc+heap+exit=info:file={file}:timenanos,tags {more}"

DRIVER_MEMORY_MB = 512
MODULES = "spark.executorEnv.PYTHONPATH"


def jvm_log(file: str | Path) -> str:
    """Return options for a JVM log of start-up, pauses and exit with System.nanoTime timestamps. log4j also reports its
    start on stderr, by the wall clock.

    If the recorder is off, the JVM logs only its start and end, and Spark logs no RPC calls. The measured cost of
    recording therefore includes these logs."""
    if tracing.switched_off():
        return _JVM_LOG.format(tags="", file=file, more="-Drpc.log.level=off")  # variable of log4j2-spark.properties
    return _JVM_LOG.format(tags="startuptime,", file=file, more="-Dlog4j2.StatusLogger.level=INFO")


def jvm_options(jvm_file: str | Path, log: str | Path, log4j2: str | Path) -> str:
    """Return options for the JVM log, and for the log of its classes by the log4j2 configuration `log4j2`."""
    return f"{jvm_log(jvm_file)} -Dlog4j2.configurationFile={shlex.quote(str(log4j2))} -Ddlobd.log={log}"


def common_conf(target: Target, submission: Submission) -> dict[str, str]:
    """Return settings for every scheduler that differ from Spark's defaults."""
    return {
        # all executors before the first job
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # nodes that unpack gigabytes first may differ by minutes
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s" if target.packed else "120s",
        "spark.pyspark.python": target.packed.python if target.packed else str(python(submission.python)),
        **({MODULES: os.pathsep.join(modules)} if (modules := python_path(submission, target)) else {}),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"{target.fs_uri}{target.events_dir}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # on YARN one thread of the driver creates the web UI while another adds a filter: on a busy machine 1 % of the
        # jobs fail in this race (Spark 4.3); dlobd does not use the UI
        "spark.ui.enabled": "false",
        "spark.ui.port": "0",  # applies if the user sets spark.ui.enabled=true
        **({} if submission.own else _benchmark(submission)),
        **submission.conf,
    }


def _benchmark(submission: Submission) -> dict[str, str]:
    """Return settings by which a fixed number of executors run one task at a time, with all their cores and GPUs."""
    cores, gpus = submission.executor_cores, submission.executor_gpus
    return {
        "spark.dynamicAllocation.enabled": "false",
        "spark.task.maxFailures": "1",  # a benchmark reports a failure and does not repeat the task
        **({"spark.task.cpus": str(cores)} if cores > 1 else {}),
        **({f"spark.{owner}.resource.gpu.amount": str(gpus) for owner in ("executor", "task")} if gpus else {}),
    }


def driver_address(target: Target) -> dict[str, str]:
    """Return the settings for the address of a driver beside spark-submit."""
    return {"spark.driver.host": target.bind_ip, "spark.driver.bindAddress": target.bind_ip}


def python_path(submission: Submission, target: Target | None = None) -> list[str]:
    """Return the PYTHONPATH that processes of a job need: on this machine, or in containers of `target`."""
    if target and submission.archive:
        return [f"./{PACKAGES}"]
    if target and target.packed:
        return []
    packages = [str(plain(submission.packages))] if submission.packages else []
    # dlobd's own code; its recorder needs no other package
    return [*packages, str(modules_dir())] if submission.python else packages


def environment(target: Target, submission: Submission | None = None) -> dict[str, str]:
    """Return the environment of spark-submit and its children, or without a submission of Spark's daemons."""
    users = os.environ.get("PYTHONPATH")
    modules = [_plain(entry) for entry in users.split(os.pathsep)] if users else []
    modules += python_path(submission) if submission else []
    return {
        # a container's launch script quotes the value, but does not escape its characters
        **({"PYTHONPATH": os.pathsep.join(modules)} if modules else {}),
        # without a locale a JVM cannot open files in directories with non-ASCII names; the daemons have the same value
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "JAVA_HOME": str(target.java_home),
        "HADOOP_CONF_DIR": str(target.client_conf_dir),
        "SPARK_CONF_DIR": str(target.spark_conf_dir),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": target.bind_ip,
        "TFOS_BIND_IP": target.bind_ip,
        "TFOS_SERVER_HOST": target.bind_ip,
        "PYSPARK_PYTHON": str(python(submission.python if submission else "")),
        "TMPDIR": str(target.tmp_dir),
        "SPARK_LOCAL_DIRS": str(target.tmp_dir),
    }


def _plain(entry: str) -> str:
    return str(plain(Path(entry))) if os.path.isabs(entry) else entry


def client_jvm_options(target: Target, evidence: Path, log4j2: str | None = None) -> str:
    """Return options of the JVM that runs beside dlobd. `log4j2`: its configuration, if it is not dlobd's own."""
    bundle = evidence.parent
    own = target.spark_conf_dir / spark_logging.CONFIGURATION
    options = jvm_options(bundle / files.DRIVER_JVM_LOG, bundle / files.DRIVER_LOG, log4j2 or own)
    return f"{options} -Djava.io.tmpdir={target.tmp_dir}"
