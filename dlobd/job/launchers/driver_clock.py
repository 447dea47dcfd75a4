"""The driver's clock, for the Python of its executors: those with another clock exchange messages with it."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from dlobd.job.launchers.own_address import BIND_IP
from dlobd.tracing import clock_sync

if TYPE_CHECKING:
    from pyspark import SparkContext


def driver_host(sc: SparkContext) -> str:
    """The address on which this driver listens for its executors: one of them, also where Spark listens on all."""
    conf = sc.getConf()
    told = [conf.get("spark.driver.bindAddress"), os.environ.get(BIND_IP), conf.get("spark.driver.host")]
    return next((host for host in told if host and host not in ("0.0.0.0", "::")), socket.gethostname())


def serve(sc: SparkContext) -> clock_sync.Server | None:
    """Starts to answer, and tells every Python worker that is started from now on where.

    The address travels with each Python function, as all of PySpark's environment: not by configuration or command
    line, where others could read its secret. None where nothing can be listened to: a job goes on without it.
    """
    try:
        server = clock_sync.Server(driver_host(sc))
    except OSError as error:
        print(f"dlobd: the offsets of other hosts' clocks stay unknown: {error}", file=sys.stderr)
        return None
    sc.environment.update(server.environment)
    return server
