"""TensorFlowOnSpark 2.2.5 as published, so that numbers are its own: the reference for what `tfos` and `barrier` save.

It is only made importable (a stand-in for pkg_resources, on the driver and on the executors). TensorFlow is imported on
the driver and in every Python worker, hosts are chosen by the default route, and all polls and sleeps are as they are.

Only spans are added: around TFCluster.run, train and shutdown on the driver, around its start and feed
tasks on the executors, and around the import of TensorFlow. What happens inside a start task beside that import (the
queue manager, the rendezvous with its polls, the fork) is not told apart: it stays `launcher`. That a trainer was
killed is recorded too, but not reported: as published, the job ends when a peer fails or a timeout is over.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.base import Roles
from dlobd.job.launchers.death import MemoryGroup, how
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos import StartTask, TfosLauncher, record_driver
from dlobd.job.launchers.tfos_compat import STOCK_POLL_NS, naming, provide_pkg_resources, timed

DRIVER_OVERHEAD_MB = 1024
"""Room beside the driver's heap for a Python that has imported TensorFlow."""


class TfosStockLauncher(TfosLauncher):
    """See the module; roles, feed and done-markers as with `tfos`."""

    def spark_conf(self) -> dict[str, str]:
        """As for `tfos`, but the worker daemon only records and makes TensorFlowOnSpark importable."""
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

    def _reads_ahead(self) -> bool:
        return False

    def _shutdown_sleep_s(self, roles: Roles) -> float | None:
        return None


def record_reservations(reservation: Any) -> None:
    """A span around the driver's wait for reservations, whose failure names those that came."""
    wait = kinds.TFOS_RESERVATION_POLL.wait(STOCK_POLL_NS)
    waiting = timed(kinds.AWAIT_RESERVATIONS, wait)(naming(reservation.Server.await_reservations))
    reservation.Server.await_reservations = waiting


class WatchedStartTask(StartTask):
    """A start task whose trainer's death is recorded."""

    def __call__(self, executor_ids: Any) -> Any:
        """Starts the node, and watches what it forked."""
        result = super().__call__(executor_ids)
        # beside the trainer there is the queue manager, which multiprocessing names after its class
        for child in [child for child in multiprocessing.active_children() if child.name.startswith("Process-")]:
            watched = (child.pid, MemoryGroup.read())
            threading.Thread(target=record_death, args=watched, name="dlobd-watch", daemon=True).start()
        return result


def record_death(pid: int, memory: MemoryGroup | None = None) -> None:
    """Waits until a child of this process has ended, and records it if it was killed. It sleeps in the kernel,
    reports to no other process, and leaves the child's exit status to be collected."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return  # its status was taken before
    if ended is not None and ended.si_code != os.CLD_EXITED:
        code = -ended.si_status
        cause = f"trainer process {pid} died: {how(code, memory)}"
        tracing.instant(kinds.TRAINER_DIED, cause=cause, pid=pid, code=code)
        tracing.flush()


def install() -> None:
    """Makes TensorFlowOnSpark importable in this process and its forks; imports nothing."""
    provide_pkg_resources()
    on_import("tensorflow", kinds.IMPORT_TENSORFLOW)
