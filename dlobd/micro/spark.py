"""Agents as barrier tasks of a Spark application: one per executor, which connect to the driver.

Barrier mode starts all tasks at once, or none. Nothing is installed on the nodes beyond what Spark's Python needs.
"""

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlobd.errors import SetupError
from dlobd.micro import agent
from dlobd.micro.agent import RemoteSite
from dlobd.network.channels.base import ChannelError
from dlobd.network.channels.sockets import SocketsChannel

EXECUTORS_S = 180.0  # time for the cluster to provide the executors


@contextmanager
def sites(count: int) -> Iterator[list[RemoteSite]]:
    """Yield the sites of `count` tasks, neighbours on different hosts as far as possible.

    Raises SetupError: the cluster does not provide the executors, or Spark fails.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("dlobd micro").getOrCreate()
    context, secret = session.sparkContext, secrets.token_bytes(16)
    channel = SocketsChannel("tcp", "", secret)
    listener = channel.listen(socket.gethostbyname(context.getConf().get("spark.driver.host")))
    failed: list[str] = []
    address = listener.address

    def task(_: Iterator[Any]) -> Iterator[int]:
        from dlobd.micro.spark import run_task

        run_task(address, secret)
        return iter(())

    def submit() -> None:
        try:
            context.parallelize(range(count), count).barrier().mapPartitions(task).collect()
        except Exception as error:  # noqa: BLE001  its message goes to the user
            failed.append(str(error).strip().splitlines()[0])

    thread = threading.Thread(target=submit, name="dlobd-micro-tasks", daemon=True)
    thread.start()
    until_s = time.monotonic() + EXECUTORS_S
    found: list[RemoteSite] = []
    try:
        while len(found) < count:
            try:
                found.append(agent.site(listener.accept(min(until_s, time.monotonic() + 1))))
            except ChannelError as error:
                why = failed[0] if failed else f"{len(found)} of {count} tasks started within {EXECUTORS_S:.0f} s"
                if failed or time.monotonic() > until_s:
                    what = f"Spark did not start {count} barrier tasks: {why}."
                    raise SetupError(what, "request as many executors, with a free core each") from error
        yield agent.spread(found)
    finally:
        channel.close()
        thread.join(10)
        session.stop()


def run_task(address: str, secret: bytes) -> None:
    """Serve the driver from a task of an executor."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    own = context.getTaskInfos()[context.partitionId()].address.partition(":")[0]
    agent.join(address, secret, socket.gethostbyname(own))
