"""Place with Spark without YARN: HDFS of the embedded cluster, executors of Spark's own Master and Workers.

Master and Workers of the pip package run for one run as JVMs on loopback. Like the Hadoop daemons they carry the mark
of the cluster's work directory, so that the cluster's watchdog and its stop also end them. The kernel ends them
together with the process that started them.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import LOOPBACK, work_dir_name
from dlobd.hadoop.embedded.processes import MARK, die_with_parent
from dlobd.job.description import Job
from dlobd.job.device_config import gpu_id
from dlobd.paths import cluster_dir, spark_home
from dlobd.run.collect import embedded as evidence
from dlobd.run.collect import event_logs, workers
from dlobd.run.observer import Report, prefixed
from dlobd.run.place import embedded
from dlobd.run.place.base import Lent, Metrics
from dlobd.run.place.embedded import EmbeddedHadoop, lent_or_own, target_of
from dlobd.run.preflight.capacity import cores_of, gpus_of
from dlobd.run.run_record import SetupTimes
from dlobd.run.schedulers.base import Target
from dlobd.run.schedulers.spark_submit import environment
from dlobd.run.schedulers.standalone import DAEMON_MEMORY_MB, MAX_WORKERS
from dlobd.run.submitted_process import Window
from dlobd.schema import Runnable

START_TIMEOUT_S = 60.0
STOP_GRACE_S = 5.0

_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")


class StandaloneSpark(EmbeddedHadoop):
    """A `Place` with HDFS of the embedded cluster and executors of Spark's own Master and Workers, which store files in
    `home`, a SPARK_HOME. `master` is the Master's address; empty if the Master runs in the driver. YARN is idle."""

    collects = "logs, spans, event log"

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        return experiment.scheduler in ("standalone", "local-cluster")

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target]:
        words, target = embedded.planned()
        if experiment.scheduler == "standalone":
            words += ", and Spark's own Master and Workers"
        home = spark_home_in(work_dir_name(cluster_dir()))
        return words, replace(target, master="<spark-master>", spark_home=home)

    @staticmethod
    @contextmanager
    def opened(experiment: Runnable, lent: Lent, times: SetupTimes, report: Report) -> Iterator["StandaloneSpark"]:
        with lent_or_own(lent, times, report) as cluster:
            home = link_home(spark_home(), cluster.work_dir)
            if experiment.scheduler == "local-cluster":
                yield StandaloneSpark(cluster, experiment.replication, home, "")
                return
            daemons = SparkDaemons(home, cluster.work_dir, environment(target_of(cluster)), experiment)
            with times.measure("spark_up"):
                master = daemons.start(prefixed(report, "prepare"))
            try:
                yield StandaloneSpark(cluster, experiment.replication, home, master)
            finally:
                with times.measure("spark_down"):
                    daemons.stop()

    def __init__(self, cluster: EmbeddedCluster, replication: int, home: Path, master: str) -> None:
        super().__init__(cluster, replication)
        self._home = home
        self._master = master

    @property
    def rm_url(self) -> None:
        return None  # executors end with their driver, and the driver with dlobd

    def target(self) -> Target:
        return replace(target_of(self.cluster), master=self._master, spark_home=self._home)

    def abort(self, application_id: str) -> str:
        return ""  # executors end with their driver

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], Metrics]:
        if not window.applications and not event_logs.has_context(bundle):
            return ["no application was submitted"], {}
        missing = workers.copy_logs(self._home, window.applications, bundle)
        missing += evidence.from_daemons(self.cluster, window.applications, self.log_offsets, job, bundle)
        for log in sorted(self._home.glob("*.log")):
            bundle.add(log, f"logs/daemons/spark-{log.name}")
        return missing, {"daemons_bytes": sum(self.cluster.memory().values())}


def spark_home_in(work_dir: Path) -> Path:
    """Return the directory that `link_home` creates."""
    return work_dir / "spark-home"


def link_home(home: Path, work_dir: Path) -> Path:
    """Create a SPARK_HOME of links to `home`; return it. Otherwise Workers would write to pip's directory.

    Executors' logs are in work/<application>/<executor> below it.
    """
    links = spark_home_in(work_dir)
    shutil.rmtree(links, ignore_errors=True)
    (links / "work").mkdir(parents=True)
    for entry in home.iterdir():
        if entry.name != "work":
            (links / entry.name).symlink_to(entry)
    return links


class SparkDaemons:
    """Master, and at most `MAX_WORKERS` Workers with room for all executors of an experiment. Work and logs go below
    `home`, the SPARK_HOME of `link_home`. The daemons carry the mark of the embedded cluster in `work_dir`."""

    def __init__(self, home: Path, work_dir: Path, environment: dict[str, str], experiment: Runnable) -> None:
        self._home = home
        self._experiment = experiment
        self._environment = {
            **os.environ,
            **environment,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": f"{DAEMON_MEMORY_MB}m",
            "SPARK_DAEMON_JAVA_OPTS": f"{MARK}{work_dir} -Ddlobd.log=/dev/null",  # no job, so no evidence
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, report: Report) -> str:
        """Start all daemons and return the Master's address once every Worker has registered.
        Raises ClusterError if a daemon ended or was not ready in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        report("starting Spark's Master and Workers")
        try:
            log = self._launch("master.Master", "master", "--host", LOOPBACK, "--port", "0", "--webui-port", "0")
            url = str(self._await(log, _MASTER_URL, deadline)[1])
            workers = min(MAX_WORKERS, self._experiment.workers)
            executors = -(-self._experiment.workers // workers)  # resources of a Worker
            cores = executors * cores_of(self._experiment)
            memory = f"{executors * self._experiment.executor_memory_mb}m"
            logs = [
                self._launch(
                    "worker.Worker",
                    f"worker-{i}",
                    *("--host", LOOPBACK, "--port", "0", "--webui-port", "0"),
                    *("--cores", str(cores), "--memory", memory, "--work-dir", str(self._home / "work"), url),
                    **self._gpus(i, executors),
                )
                for i in range(workers)
            ]
            for log in logs:
                self._await(log, _REGISTERED, deadline)
        except BaseException:
            self.stop()
            raise
        return url

    def stop(self) -> None:
        """End the Workers with their remaining executors, and then the Master."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._started):
            try:
                process.wait(STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()

    def _gpus(self, worker: int, executors: int) -> dict[str, str]:
        """Return the environment that assigns a Worker enough consecutive GPUs for its executors."""
        count = executors * gpus_of(self._experiment)
        if not count:
            return {}
        last = min((worker + 1) * count, self._experiment.workers * gpus_of(self._experiment))
        addresses = [gpu_id(number) for number in range(worker * count, last)]
        file = self._home / f"worker-{worker}-gpus.json"
        gpu = {"componentName": "spark.worker", "resourceName": "gpu"}
        file.write_text(json.dumps([{"id": gpu, "addresses": addresses}]))
        options = (f"-Dspark.worker.resource.gpu.amount={len(addresses)}", f"-Dspark.worker.resourcesFile={file}")
        return {"SPARK_WORKER_OPTS": " ".join(options)}

    def _launch(self, kind: str, name: str, *arguments: str, **environment: str) -> Path:
        log = self._home / f"{name}.log"
        with log.open("wb") as output:
            self._started.append(
                subprocess.Popen(
                    [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                    env={**self._environment, **environment},
                    cwd=self._home,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=lambda: die_with_parent(signal.SIGTERM),
                )
            )
        return log

    def _await(self, log: Path, pattern: re.Pattern[str], deadline: float) -> re.Match[str]:
        while not (match := pattern.search(log.read_text(errors="replace"))):
            if any(process.poll() is not None for process in self._started):
                raise ClusterError(f"A Spark daemon exited during start-up; {_last_line(log)}", f"see {log}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Spark's {log.stem} was not ready within {START_TIMEOUT_S:.0f} s; {_last_line(log)}",
                    f"see {log}",
                )
            time.sleep(0.1)
        return match


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return f"its last line: {lines[-1][:200]}" if lines else "its log is empty."
