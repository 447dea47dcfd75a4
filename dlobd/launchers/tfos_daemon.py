"""PySpark's worker daemon with the recorder open and TensorFlowOnSpark prepared.

Spark starts it with `spark.python.daemon.module`, so that a user's Python stays untouched. It must start no thread:
it forks every Python worker.
"""

from __future__ import annotations

import os

from dlobd import trace


def main() -> None:
    """Opens the recorder in the container's log directory and becomes `pyspark.daemon`."""
    log_dirs = os.environ.get("LOG_DIRS", "")
    if log_dirs:
        trace.start(log_dirs.split(",")[0], "python-worker", threaded=False)
    with trace.span("spark", "import pyspark and tensorflowonspark"):
        from dlobd.launchers import tfos_compat

        tfos_compat.install()
        from pyspark.daemon import manager
    trace.instant("python daemon up")
    trace.flush()
    manager()


if __name__ == "__main__":
    main()
