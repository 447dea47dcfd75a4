"""PySpark's worker daemon with a recorder. Spark starts the module that `spark.python.daemon.module` names.

The daemon must not start a thread, because it forks every Python worker.
"""

import os
from collections.abc import Callable

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.imports import record_packages


def serve(prepare: Callable[[], None] = lambda: None) -> None:
    """Open the recorder in the container's log directory, and run `pyspark.daemon`.

    `prepare` imports modules before the first fork, so that no Python worker has to import them.
    """
    if log_dirs := os.environ.get("LOG_DIRS"):
        tracing.start(log_dirs.split(",")[0], "python-worker", threaded=False, forks="python-worker")
    record_packages()
    with tracing.span(kinds.IMPORT_PYSPARK):
        prepare()
        from pyspark.daemon import manager
    _record_forks()
    tracing.instant(kinds.PYTHON_DAEMON_UP)
    tracing.flush()
    manager()


def _record_forks() -> None:
    # with these instants, dlobd detects a lost span file of a worker
    daemon, fork = os.getpid(), os.fork

    def recorded_fork() -> int:
        pid = fork()
        if pid and os.getpid() == daemon:  # a worker may fork too
            tracing.instant(kinds.WORKER_FORKED, pid=pid)
        return pid

    os.fork = recorded_fork


if __name__ == "__main__":
    serve()
