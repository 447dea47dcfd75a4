"""The driver's servers for ranks: the rendezvous of dlobd's own exchanges, and the status of ranks."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from dlobd.axes import EXCHANGES
from dlobd.job.description import Job
from dlobd.job.launchers.addresses import CHANNEL, driver_host
from dlobd.job.rank_status import StatusServer

if TYPE_CHECKING:
    from pyspark import SparkContext


@contextmanager
def serve_rendezvous(sc: SparkContext | None, job: Job) -> Iterator[None]:
    """Set channel and rendezvous servers in the environment of ranks that start inside the context.

    The secret of the run travels with each Python function: configuration and command line would expose it.

    Raises SetupError: the driver cannot listen on its address.
    """
    environment = os.environ if sc is None else sc.environment
    environment[CHANNEL] = job.channel
    if EXCHANGES.declared(job.exchange).inside_step:
        yield  # TensorFlow's servers have their own rendezvous
        return
    from dlobd.network.exchanges.outside_step import RENDEZVOUS
    from dlobd.network.rendezvous.pmi import PmiServer
    from dlobd.network.rendezvous.store import KeyValueStore

    secret = secrets.token_hex(16)
    host = socket.gethostbyname(driver_host(sc) if sc else "127.0.0.1")
    with ExitStack() as stack:
        store = stack.enter_context(closing(KeyValueStore(host, job.workers, secret.encode())))
        servers = {"address": store.address, "secret": secret}
        if job.library == "mpi":
            server = stack.enter_context(closing(PmiServer(host, job.workers, secret.encode())))
            servers["pmi"] = server.address
        environment[RENDEZVOUS] = json.dumps(servers)
        yield


@contextmanager
def serve_rank_status(sc: SparkContext | None, job: Job) -> Iterator[StatusServer | None]:
    """Serve status messages of ranks that start inside the context.

    Yields None without Spark, because the launcher sees the end of its ranks, and if the driver cannot listen: then it
    reads the markers."""
    if sc is None:
        yield None
        return
    try:
        server = StatusServer(socket.gethostbyname(driver_host(sc)), job.workers)
    except OSError as error:
        print(f"dlobd: the driver cannot receive the status of ranks: {error}", file=sys.stderr)
        yield None
        return
    sc.environment.update(server.environment)
    with closing(server):
        yield server
