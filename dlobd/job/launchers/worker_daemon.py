"""PySpark's worker daemon with the recorder open. Spark starts it with `spark.python.daemon.module`.

It must start no thread: it forks every Python worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.imports import record_packages


def serve(prepare: Callable[[], None] = lambda: None) -> None:
    """Opens the recorder in the container's log directory and becomes `pyspark.daemon`.

    Args:
        prepare: what a launcher imports before the first fork, so that no Python worker has to.
    """
    log_dirs = os.environ.get("LOG_DIRS", "")
    if log_dirs:
        tracing.start(log_dirs.split(",")[0], "python-worker", threaded=False)
    record_packages()
    with tracing.span(kinds.IMPORT_PYSPARK):
        prepare()
        from pyspark.daemon import manager
    _note_forks()
    tracing.instant(kinds.PYTHON_DAEMON_UP)
    tracing.flush()
    manager()


def _note_forks() -> None:
    """Each worker that is forked from now on is noted: one without a span file of its own is missed then."""
    daemon, fork = os.getpid(), os.fork

    def noted() -> int:
        pid = fork()
        if pid and os.getpid() == daemon:  # a worker may fork too
            tracing.instant(kinds.WORKER_FORKED, pid=pid)
        return pid

    os.fork = noted


if __name__ == "__main__":
    serve()
