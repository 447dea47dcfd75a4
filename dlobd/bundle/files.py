"""Names of files in a bundle that several modules use, relative to the bundle."""

from __future__ import annotations

RUN = "run.json"
HASHES = "hashes"

PARTS = ("spans", "evidence", "logs")

JOB = "evidence/job.json"
"""Description of the submitted job; for the user's own script, the run's configuration."""
SCRIPT = "evidence/script.py"
"""Copy of the user's own script."""
MODEL = "evidence/model.py"
"""Copy of the user's own model, with secrets redacted."""
WINDOW = "evidence/window.json"
"""The run's window: `dlobd.run.submitted_process.Window`."""
SPAN_COST = "evidence/span_cost.json"
"""Cost of recording one span, measured just before the run."""
NOISE = "evidence/noise.json"
"""The machine's noise just before the window."""
PAGE_CACHE = "evidence/page_cache.json"
"""Resident bytes of the training files in this machine's page cache, just before the window."""
ENVIRONMENT_CACHE = "evidence/environment_cache.json"
"""Resident bytes of the job's environment in this machine's page cache, just before and after the window."""
RESOURCES = "evidence/resources.jsonl"
"""Resource samples of dlobd's machine and of the run's processes on it; see `dlobd.run.resource_sampler`."""
COLLECTED = "evidence/collected.json"
"""Missing evidence, and metrics that were read from the running cluster."""
DRIVER_JVM_LOG = "evidence/driver-jvm.log"
"""JVM log (-Xlog) of spark-submit, whose JVM is the driver in client mode."""
EVENT_LOG = "evidence/event-log.jsonl"
"""Spark's event log."""
MARKERS = "evidence/markers.json"
"""Mapping of the ranks' done-markers and failure markers to their text."""
BLOCKS = "evidence/blocks.json"
"""Mapping of HDFS paths of input files to WebHDFS's answers to GET_BLOCK_LOCATIONS."""
HOSTS = "evidence/hosts.json"
"""Mapping of an external cluster's nodes to their IPv4 addresses, as resolved by the client."""
CLIENT_INTERFACES = "evidence/client-interfaces.json"
"""Network interfaces of dlobd's machine after the run, with counters; only with an external cluster."""
CHECKSUMS = "evidence/checksums.json"
"""Checksums of the input files, from staging and from HDFS after the run."""
RM_APPLICATION = "evidence/rm-app.json"
RM_ATTEMPTS = "evidence/rm-attempts.json"
"""The ResourceManager's REST records; attempts only with an external cluster."""
NM_CONTAINERS = "evidence/nm-containers.json"
"""The NodeManagers' JMX beans of containers."""
DAEMONS = "evidence/daemons.json"
"""State of the embedded cluster's daemons when the evidence was collected."""

DRIVER_STDOUT = "logs/driver.stdout"
DRIVER_LOG = "logs/driver.log"
"""Log of spark-submit's JVM at dlobd's levels, which is the driver in client mode; containers have `SPARK_LOG`."""
DRIVER_STDERR = "logs/driver.stderr"
"""Stderr of spark-submit, including the driver's in client mode; for launcher native, stderr of the parent process."""
OUTPUTS = ("driver.stdout", "driver.stderr", "stdout", "stderr")
"""Names of files that user code may write any amount to."""
CONTAINER_LOGS = "logs/containers"
"""Directory per container or executor: stdout, stderr, jvm.log, spark.log and other files of its process."""
SPARK_LOG = "spark.log"
"""Log of a container's JVM at dlobd's levels."""
DAEMON_LOGS = "logs/daemons"
"""Log lines of each daemon during the job."""
DRIVER_SPANS = "spans/driver"
"""Span files of a driver on dlobd's machine; each container has its own directory."""


def executor_key(application: int, executor: str) -> str:
    """Return the key of an executor in a run: its ID, with the number of its application from the second one on."""
    return executor if application == 1 else f"{application}.{executor}"


def of_application(name: str, application: int) -> str:
    """Return the name of a file about one application, from its name for the first: evidence/2/rm-app.json."""
    return name if application == 1 else name.replace("/", f"/{application}/", 1)
