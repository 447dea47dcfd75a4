"""TensorFlowOnSpark 2.2.5 as published: the baseline for the savings of `tfos` and `barrier`.

The only change, a replacement of pkg_resources on the driver and on the executors, makes the package importable.
TensorFlow is imported on the driver and in every Python worker, the default route determines the hosts' addresses, and
all polls and sleeps are unchanged.

Spans are added around TFCluster.run, train and shutdown on the driver, around its start and feed tasks on the
executors, and around the import of TensorFlow. The rest of a start task (the queue manager, the rendezvous with its
polls, the fork) has no spans: its time belongs to `launcher`. The death of a trainer is recorded but not reported: as
published, the job ends when a peer fails or a timeout expires.
"""

import multiprocessing
import os
import threading
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.failure import MemoryGroup, exit_status
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos import StartTask, TfosLauncher, record_driver
from dlobd.job.launchers.tfos_compat import STOCK_POLL_NS, name_registered, provide_pkg_resources, record_calls, replace

DRIVER_OVERHEAD_MB = 1024  # memory beside the driver's heap for a Python process with TensorFlow


class TfosStockLauncher(TfosLauncher):
    """Launcher with the roles, the feed and the done-markers of `tfos`."""

    reads_ahead = False
    shutdown_sleep_s = None

    def spark_conf(self) -> dict[str, str]:
        """Return settings for the worker daemon that records and makes TensorFlowOnSpark importable."""
        return {
            **super().spark_conf(),
            "spark.python.daemon.module": "dlobd.job.launchers.tfos_stock_daemon",
            # in cluster mode YARN counts the driver's TensorFlow too
            "spark.driver.memoryOverhead": f"{DRIVER_OVERHEAD_MB}m",
        }

    def _prepared(self) -> Any:
        install()
        from tensorflowonspark import TFCluster, TFSparkNode, reservation

        record_driver(TFSparkNode, STOCK_POLL_NS, start_task=WatchedStartTask)
        record_reservations(reservation)
        return TFCluster


def record_reservations(reservation: Any) -> None:
    """Record the driver's wait for reservations, and add the registered nodes to the error of a failed wait."""
    wait = kinds.TFOS_RESERVATION_POLL.wait(STOCK_POLL_NS)
    replace(reservation.Server, "await_reservations")(name_registered)
    record_calls(reservation.Server, "await_reservations", kinds.AWAIT_RESERVATIONS, wait)


class WatchedStartTask(StartTask):
    """Start task that records the death of its trainer."""

    def __call__(self, executor_ids: object) -> object:
        result = super().__call__(executor_ids)
        # the other child is the queue manager, which is named after its class
        for child in multiprocessing.active_children():
            if child.name.startswith("Process-"):
                arguments = (child.pid, MemoryGroup.read())
                threading.Thread(target=record_death, args=arguments, name="dlobd-watch", daemon=True).start()
        return result


def record_death(pid: int, memory: MemoryGroup) -> None:
    """Wait for the end of a child, and record it if a signal ended the child.

    The call blocks in the kernel, reports to no other process, and leaves the exit status for the parent's `wait`.
    """
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return  # another caller has collected the exit status
    if ended is not None and ended.si_code != os.CLD_EXITED:
        code = -ended.si_status
        cause = f"trainer process {pid} died: {exit_status(code, memory)}"
        tracing.instant(kinds.TRAINER_DIED, cause=cause, pid=pid, code=code)
        tracing.flush()


def install() -> None:
    """Make TensorFlowOnSpark importable in this process and its forks, without any import."""
    provide_pkg_resources()
    on_import("tensorflow", kinds.IMPORT_TENSORFLOW)
