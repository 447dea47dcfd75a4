"""PySpark's worker daemon with the recorder open. Spark starts it with `spark.python.daemon.module`.

It must start no thread: it forks every Python worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from dlobd import trace


def serve(prepare: Callable[[], None] = lambda: None) -> None:
    """Opens the recorder in the container's log directory and becomes `pyspark.daemon`.

    Args:
        prepare: what a launcher imports before the first fork, so that no Python worker has to.
    """
    log_dirs = os.environ.get("LOG_DIRS", "")
    if log_dirs:
        trace.start(log_dirs.split(",")[0], "python-worker", threaded=False)
    with trace.span("spark", "import pyspark"):
        prepare()
        from pyspark.daemon import manager
    trace.instant("python daemon up")
    trace.flush()
    manager()


if __name__ == "__main__":
    serve()
