"""THE table of the files in a bundle that more than one module knows by name: who writes them, who reads them.

Names are relative to the bundle. What a name does not say is said here, once.
"""

from __future__ import annotations

RUN = "run.json"
HASHES = "hashes"

PARTS = ("spans", "evidence", "logs")

JOB = "evidence/job.json"
"""What the submitted job was told; of the user's own script, the run's configuration."""
SCRIPT = "evidence/script.py"
"""The user's own script, as it was run."""
MODEL = "evidence/model.py"
"""The user's own model, as it was run but for secrets in its text."""
WINDOW = "evidence/window.json"
"""`dlobd.run.submit.Window`: what the client saw."""
SPAN_COST = "evidence/span_cost.json"
"""What one span cost just before the run."""
NOISE = "evidence/noise.json"
"""The machine's noise just before the window."""
COLLECTED = "evidence/collected.json"
"""What could not be had, and metrics that only the running cluster knew."""
DRIVER_JVM_LOG = "evidence/driver-jvm.log"
"""The -Xlog of the JVM beside dlobd: spark-submit, and in client mode the driver."""
EVENT_LOG = "evidence/event-log.jsonl"
"""Spark's."""
MARKERS = "evidence/markers.json"
"""Name to text of what ranks left when they were done, or failed."""
BLOCKS = "evidence/blocks.json"
"""HDFS path of an input file to WebHDFS's GET_BLOCK_LOCATIONS."""
CHECKSUMS = "evidence/checksums.json"
"""Checksums of the input files: as they were staged, and by HDFS after the run."""
RM_APPLICATION = "evidence/rm-app.json"
RM_ATTEMPTS = "evidence/rm-attempts.json"
"""The ResourceManager's REST records; attempts are there of an external cluster only."""
NM_CONTAINERS = "evidence/nm-containers.json"
"""JMX beans of containers, by their NodeManagers."""
DAEMONS = "evidence/daemons.json"
"""The embedded cluster's daemons when the evidence was collected."""

DRIVER_STDOUT = "logs/driver.stdout"
DRIVER_STDERR = "logs/driver.stderr"
"""Of spark-submit, and of the driver below it in client mode; of launcher native, of the parent process."""
CONTAINER_LOGS = "logs/containers"
"""A directory a container or executor; stdout, stderr, jvm.log and what else its process left there."""
DAEMON_LOGS = "logs/daemons"
"""What each daemon logged while the job ran."""
DRIVER_SPANS = "spans/driver"
"""Span files of a driver beside spark-submit; those of containers lie in a directory a container."""
