"""Settings of Spark that a user adds to dlobd's own jobs: their text, and those that dlobd sets itself.

`dlobd.experiment.spark_submit_line` merges them into dlobd's spark-submit line.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from dlobd.errors import UsageError
from dlobd.experiment import user_logging
from dlobd.experiment.settings import Source
from dlobd.job.user.spark_settings import CURRENT_NAMES, rivals
from dlobd.schema import Experiment

EQUIVALENT = {
    "spark.app.name": "name",
    "spark.cores.max": "workers",
    "spark.executor.cores": "executor_cores",
    "spark.executor.instances": "workers",
    "spark.executor.memory": "executor_memory_mb",
    "spark.executor.memoryOverhead": "executor_overhead_mb",
    "spark.executor.resource.*": "device",
    "spark.hadoop.dfs.replication": "replication",
    "spark.master": "scheduler",
    "spark.submit.deployMode": "deploy_mode",
    "spark.task.cpus": "executor_cores",
    "spark.task.resource.*": "device",
    "spark.yarn.queue": "queue",
}
"""Setting of Spark, as a pattern -> equivalent setting of dlobd."""

NEEDED = {
    "the event log is evidence": "spark.eventLog.*",
    "the executors' logs are evidence": "spark.executorEnv.LOG_DIRS",
    "recording needs dlobd's Python workers": "spark.pyspark.* spark.python.daemon.module spark.python.use.daemon "
    "spark.python.worker.reuse spark.executorEnv.DLOBD_* spark.yarn.appMasterEnv.PYSPARK*",
    "the job needs a SparkContext in the driver": "spark.api.mode spark.remote",
    "recording needs the ApplicationMaster's container": "spark.yarn.unmanagedAM.enabled",
    "dlobd sets the address of the cluster's network": "spark.driver.bindAddress spark.driver.host "
    "spark.executorEnv.*_IP",
    "the number of ranks is fixed": "spark.dynamicAllocation.* spark.scheduler.*RegisteredResources*",
    "a repeated attempt changes the measured time": "spark.executor.maxNumFailures spark.speculation "
    "spark.task.maxFailures spark.yarn.maxAppAttempts",
    "the measured time ends when spark-submit exits": "spark.yarn.submit.waitAppCompletion",
    "dlobd sets it": "spark.dlobd.*",
}
"""Reason -> settings of Spark that dlobd needs itself, as patterns."""


def pairs(text: str) -> dict[str, str]:
    """Parse `KEY=VALUE KEY=VALUE`, quoted as in a shell. Raises ValueError for a word without a key and `=`."""
    found = {}
    for word in shlex.split(text):
        key, sign, value = word.partition("=")
        if not sign or not key.startswith("spark."):
            raise ValueError(f"{word!r} is not spark.KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


@dataclass(frozen=True, slots=True)
class Options:
    """Options --conf and --queue of a command, and the queue of jobs without a queue of their own."""

    conf: tuple[str, ...] = ()
    queue: str = ""
    default_queue: str = ""

    def apply(self, values: dict[str, object], sources: dict[str, Source]) -> None:
        """Add the options to the values of a file; --conf wins for each KEY. Raises UsageError."""
        if self.conf:
            try:
                every = pairs(str(values.get("spark_conf", ""))) | pairs(shlex.join(self.conf))
            except ValueError as error:
                raise UsageError(f"--conf: {error}.", "--conf spark.KEY=VALUE") from None
            values["spark_conf"] = shlex.join(f"{key}={value}" for key, value in every.items())
            sources["spark_conf"] = Source("--conf", option=True)
        if self.queue:
            values["queue"], sources["queue"] = self.queue, Source("--queue", option=True)
        elif self.default_queue:
            values.setdefault("queue", self.default_queue)

    @property
    def words(self) -> tuple[str, ...]:
        """The options of spark-submit."""
        queue = self.queue or self.default_queue
        return (*(word for pair in self.conf for word in ("--conf", pair)), *(("--queue", queue) if queue else ()))


NO_OPTIONS = Options()


def refusal(key: str) -> tuple[str, str]:
    """Return the reason and the remedy if dlobd needs a setting of Spark itself; ("", "") otherwise."""
    name = CURRENT_NAMES.get(key, key)
    for pattern, own in EQUIVALENT.items():
        if fnmatch(name, pattern) or name in rivals(pattern):
            return f"{key} follows from dlobd's setting {own}.", f"--set {own}=VALUE"
    why = next((why for why, patterns in NEEDED.items() if any(fnmatch(name, one) for one in patterns.split())), "")
    return (f"{key} cannot be set: {why}.", "omit it") if why else ("", "")


def wrong(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) for settings of Spark that a job of dlobd cannot have."""
    try:
        conf = pairs(experiment.spark_conf)
    except ValueError as error:
        yield "spark_conf", f"spark_conf: {error}.", 'spark_conf = "spark.KEY=VALUE spark.KEY=VALUE"'
        return
    if conf and experiment.scheduler == "none":
        yield "spark_conf", "spark_conf has no effect: scheduler none runs without Spark.", "omit it"
    if experiment.queue and experiment.scheduler != "yarn":
        yield "queue", f"queue has no effect: scheduler {experiment.scheduler} has no queues.", "omit it"
    for why, remedy in map(refusal, conf):
        if why:
            yield "spark_conf", why, remedy
    try:
        user_logging.of_line(conf, experiment.deploy_mode == "cluster")
    except UsageError as error:
        yield "spark_conf", error.what, error.remedy
