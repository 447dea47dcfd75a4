"""What run.json says that does not follow from the evidence, because only the client knew it: versions, the machine,
the command, the settings, the times of preparation. The evidence tells much of it again. Pure.

Each function yields what contradicts it, one line each; what the evidence does not tell is no contradiction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from dlobd.attribution.importers.evidence import Evidence
from dlobd.record.run import Run
from dlobd.tracing import names

PREPARED = ("cluster_up_ns", "staging_ns", "page_cache_ns", "noise_ns")
"""The parts of `setup` that come one after another between the run's begin and its window."""

BEGIN_S = 60
"""A run's id and its `started_at` are of one moment; loading of modules lies between, at most so long."""

LOAD_S, LOAD_KEPT = 5, 1884 / 2048
"""The kernel adds to its load of one minute so often, and keeps so much of what it was (include/linux/sched/loadavg.h).
"""

LOAD_DIGITS = 0.02
"""It tells two digits, and cuts off others."""

_VERSION = re.compile(r"Running Spark version (\S+)$")
_JAVA = re.compile(r"Java version (\d[\d.]*)")
_SYSTEM = re.compile(r"OS info (\w+), (\S+), (\w+)$")
_INTERPRETER = re.compile(r"/python(\d+\.\d+)/site-packages/")
_HADOOP = re.compile(r"^STARTUP_MSG:\s+version = (\S+)", re.MULTILINE)
_CAPACITY = re.compile(r"Assigned container (container_\w+) of capacity <memory:(\d+), vCores:\d+>")
_RUN_ID = "%Y%m%dT%H%M%SZ"


def contradicted(run: Run, evidence: Evidence) -> Iterator[str]:
    """All of it."""
    yield from _versions(run, evidence)
    yield from _platform(run, evidence)
    yield from _command(run, evidence)
    yield from _settings(run, evidence)
    yield from _times(run, evidence)


def _differ(what: str, said: Any, source: str, found: Any) -> Iterator[str]:
    if said is not None and found is not None and said != found:
        yield f"{what}: {said} in run.json, {found} by {source}"


def _versions(run: Run, evidence: Evidence) -> Iterator[str]:
    said = run.versions
    for line in evidence.driver_lines:
        if match := _VERSION.search(line.message):
            yield from _differ("versions.pyspark", said.get("pyspark"), "the driver's log", match[1])
        if (match := _JAVA.search(line.message)) and not evidence.external:
            yield from _differ("versions.java", said.get("java"), "the driver's log", match[1])
    if evidence.spark_application and evidence.spark_application.spark_version:
        yield from _differ(
            "versions.pyspark", said.get("pyspark"), "the event log", evidence.spark_application.spark_version
        )
    if not evidence.own:
        for process in evidence.processes:
            for instant in process.instants:
                if instant.name == names.TENSORFLOW_IMPORTED:
                    here = f"{process.process.role} {process.process.index}"
                    found = instant.attrs.get("version")
                    yield from _differ("versions.tensorflow", said.get("tensorflow"), here, found)
                    if match := _INTERPRETER.search(str(instant.attrs.get("path", ""))):
                        short = ".".join(str(said.get("python", "")).split(".")[:2])
                        yield from _differ("versions.python", short, here, match[1])
    for daemon in evidence.daemon_logs:
        text = (evidence.path / "logs" / "daemons" / f"{daemon}.log").read_text(errors="replace")
        if match := _HADOOP.search(text):
            yield from _differ("versions.hadoop", said.get("hadoop"), f"{daemon}'s log", match[1])


def _platform(run: Run, evidence: Evidence) -> Iterator[str]:
    said = run.platform
    own = evidence.window["anchors"][0]["domain"].split("/")[0]
    yield from _load(run, evidence)
    yield from _differ("platform.host", said.get("host"), "the client's clock", own)
    if not (evidence.cluster_mode or evidence.by_hand or evidence.native):  # else its JVM may be of another machine
        for line in evidence.driver_lines:
            if match := _SYSTEM.search(line.message):
                yield from _differ("platform.system", said.get("system"), "the driver's log", match[1])
                yield from _differ("platform.kernel", said.get("kernel"), "the driver's log", match[2])
    if host := evidence.resources:
        yield from _differ("platform.cores", said.get("cores"), "the sampler", host.cores)
        yield from _differ("platform.memory_bytes", said.get("memory_bytes"), "the sampler", host.memory_bytes)
        yield from _differ("platform.host", said.get("host"), "the sampler", host.host)


def _load(run: Run, evidence: Evidence) -> Iterator[str]:
    """The load when the run began, and that when the noise was measured: the kernel forgets a load only so fast."""
    said, later = run.platform.get("load_1m"), (evidence.noise or {}).get("load_1m")
    if evidence.by_hand or later is None or not isinstance(said, int | float):
        return
    kept = said * LOAD_KEPT ** (max(_before_window_s(run, evidence), 0) / LOAD_S + 1)
    if later < kept - LOAD_DIGITS:
        yield f"platform.load_1m: {said} in run.json, of which {kept:.2f} were left when the noise's was {later}"


def _before_window_s(run: Run, evidence: Evidence) -> float:
    """How long a run prepared."""
    anchor = evidence.window["anchors"][0]
    window_s: float = (anchor["wall_ns"] + evidence.window["exec_ns"] - anchor["monotonic_ns"]) / 1e9
    return window_s - datetime.fromisoformat(run.started_at).timestamp()


def _options(command: Sequence[str]) -> dict[str, str]:
    """spark-submit's options; `--conf` by the key of its property."""
    found: dict[str, str] = {}
    for option, value in pairwise(command):
        if option == "--conf":
            key, _, found_value = value.partition("=")
            found[key] = found_value
        elif option.startswith("--"):
            found[option] = value
    return found


SAME: dict[str, str] = {
    "--num-executors": "spark.executor.instances",
    "--executor-cores": "spark.executor.cores",
    "--executor-memory": "spark.executor.memory",
    "--driver-memory": "spark.driver.memory",
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
}
"""An option of spark-submit, and the property that it sets."""


def _command(run: Run, evidence: Evidence) -> Iterator[str]:
    """The command against the configuration, and against what Spark says that it was told."""
    if evidence.native or evidence.by_hand:
        return
    options, settings = _options(run.command), run.to_json()["configuration"]
    told = {
        "--num-executors": settings.get("workers"),
        "--deploy-mode": settings.get("deploy_mode"),
        "--name": f"dlobd-{settings.get('name')}",
        "--executor-memory": f"{settings.get('executor_memory_mb')}m",
        "spark.executor.memoryOverhead": f"{settings.get('executor_overhead_mb')}m",
        "spark.hadoop.dfs.replication": settings.get("replication"),
    }
    for option, value in told.items():
        if option in options and value is not None and not evidence.own:
            yield from _differ(f"command {option}", options[option], "the configuration", str(value))
    if evidence.spark_application:
        properties = evidence.spark_application.properties
        for option, value in options.items():
            found = properties.get(SAME.get(option, option))
            # a script may set properties of its own, and what dlobd adds to a property stands beside it
            if found is not None and not evidence.own and "redacted" not in found + value and value not in found:
                yield f"command {option}: {value} in run.json, {found} by the event log"


def _settings(run: Run, evidence: Evidence) -> Iterator[str]:
    """The configuration against what YARN handed out, and what the job did."""
    settings = run.to_json()["configuration"]
    memory = settings.get("executor_memory_mb"), settings.get("executor_overhead_mb")
    containers = set(evidence.executor_containers.values())
    if None not in memory and evidence.on_yarn and containers:
        asked = sum(mb for mb in memory if mb is not None)
        for line in evidence.daemon_log("resourcemanager"):
            # YARN rounds up to its unit of allocation
            if (match := _CAPACITY.search(line.message)) and match[1] in containers and int(match[2]) < asked:
                yield f"configuration: executors of {asked} MB in run.json, {match[2]} MB by the ResourceManager"
    cache = (evidence.page_cache or {}).get("asked")
    yield from _differ("configuration.page_cache", settings.get("page_cache"), "the page cache's record", cache)
    seed = settings.get("seed")
    for name, value in run.to_json()["seeds"].items():
        yield from _differ(f"seeds.{name}", value, "the configuration", seed)
    if evidence.job.get("run_dir"):
        yield from _differ("run_id", run.run_id, "the job", evidence.job["run_dir"].rpartition("/")[2])


def _times(run: Run, evidence: Evidence) -> Iterator[str]:
    if evidence.by_hand:
        return
    began = datetime.fromisoformat(run.started_at).timestamp()
    named = datetime.strptime(f"{run.run_id.partition('-')[0]}+0000", f"{_RUN_ID}%z").timestamp()
    if not -1 <= began - named <= BEGIN_S:
        yield f"started_at: {run.started_at} in run.json, {run.run_id} by the id"
    prepared_s = _before_window_s(run, evidence)
    took_s = sum((run.setup.get(part) or 0) for part in PREPARED) / 1e9
    if took_s > prepared_s + 1:
        yield f"setup: {took_s:.1f} s after {run.started_at} in run.json, {prepared_s:.1f} s to the window"
