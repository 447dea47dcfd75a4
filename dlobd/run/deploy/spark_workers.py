"""Spark's own Master and Workers from the pip package, each a JVM of its own on loopback, for one run.

They carry the work directory's mark, as the Hadoop daemons do, so that its watchdog and its stop end them too; and the
kernel ends them with the process that started them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from dlobd.errors import ClusterError
from dlobd.hadoop.embedded.configuration import LOOPBACK
from dlobd.hadoop.embedded.processes import MARK, die_with_parent
from dlobd.job.launchers.visible_gpus import address
from dlobd.run.schedulers.standalone import DAEMON_MEMORY_MB, MAX_WORKERS

START_DEADLINE_S = 60.0
STOP_GRACE_S = 5.0

_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


def spark_home_in(work_dir: Path) -> Path:
    """Where `links_home` makes it."""
    return work_dir / "spark-home"


def links_home(home: Path, work_dir: Path) -> Path:
    """A SPARK_HOME of links to `home`, because Spark keeps the work of Workers in its own home, which is pip's.

    Returns:
        The directory; executors' logs are in work/<application>/<executor> below it.
    """
    links = spark_home_in(work_dir)
    shutil.rmtree(links, ignore_errors=True)
    (links / "work").mkdir(parents=True)
    for entry in home.iterdir():
        if entry.name != "work":
            (links / entry.name).symlink_to(entry)
    return links


class SparkWorkers:
    """One Master and `MAX_WORKERS` Workers with room for all executors together.

    Args:
        home: of `links_home`; work and logs go below it.
        work_dir: the embedded cluster's, whose mark they carry.
        environment: JAVA_HOME, SPARK_CONF_DIR, HADOOP_CONF_DIR and so on.
    """

    def __init__(
        self,
        home: Path,
        work_dir: Path,
        environment: dict[str, str],
        executors: int,
        executor_memory_mb: int,
        executor_cores: int,
        executor_gpus: int,
    ) -> None:
        self._home = home
        self._executors = executors
        self._executor_memory_mb = executor_memory_mb
        self._executor_cores = executor_cores
        self._executor_gpus = executor_gpus
        self._environment = {
            **os.environ,
            **environment,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": f"{DAEMON_MEMORY_MB}m",
            "SPARK_DAEMON_JAVA_OPTS": f"{MARK}{work_dir}",
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, progress: Callable[[str], None]) -> str:
        """Starts all and returns the Master's address once every Worker has registered.

        Raises:
            ClusterError: one ended or was not ready in time.
        """
        deadline = time.monotonic() + START_DEADLINE_S
        progress("Spark Master and Workers")
        try:
            log = self._launch("master.Master", "master", "--host", LOOPBACK, "--port", "0", "--webui-port", "0")
            url = str(self._await(log, _MASTER_URL, deadline)[1])
            workers = min(MAX_WORKERS, self._executors)
            each = -(-self._executors // workers)
            cores = each * self._executor_cores
            memory = f"{each * self._executor_memory_mb}m"
            logs = [
                self._launch(
                    "worker.Worker",
                    f"worker-{i}",
                    *("--host", LOOPBACK, "--port", "0", "--webui-port", "0"),
                    *("--cores", str(cores), "--memory", memory, "--work-dir", str(self._home / "work"), url),
                    **self._gpus(i, each),
                )
                for i in range(workers)
            ]
            for log in logs:
                self._await(log, re.compile(_REGISTERED), deadline)
        except BaseException:
            self.stop()
            raise
        return url

    def stop(self) -> None:
        """Ends the Workers, with them what executors are left, and then the Master."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._started):
            try:
                process.wait(STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()

    def _gpus(self, worker: int, each: int) -> dict[str, str]:
        """The environment that tells a Worker its GPUs: so many an executor, one Worker's after the other's."""
        count = each * self._executor_gpus
        if not count:
            return {}
        last = min((worker + 1) * count, self._executors * self._executor_gpus)
        addresses = [address(number) for number in range(worker * count, last)]
        told = self._home / f"worker-{worker}-gpus.json"
        gpu = {"componentName": "spark.worker", "resourceName": "gpu"}
        told.write_text(json.dumps([{"id": gpu, "addresses": addresses}]))
        options = (f"-Dspark.worker.resource.gpu.amount={len(addresses)}", f"-Dspark.worker.resourcesFile={told}")
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
        """The line that `pattern` finds in a daemon's log."""
        while not (match := pattern.search(log.read_text(errors="replace"))):
            if any(process.poll() is not None for process in self._started):
                raise ClusterError(f"A Spark daemon exited during start-up; {_last_line(log)}", f"see {log}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Spark's {log.stem} was not ready within {START_DEADLINE_S:.0f} s; {_last_line(log)}",
                    f"look at {log}",
                )
            time.sleep(0.1)
        return match


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return f"its last line: {lines[-1][:200]}" if lines else "it said nothing."
