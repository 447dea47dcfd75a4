"""Where ranks meet: by which channel, and, if their exchange is dlobd's own, in the driver's address book; and where
they tell the driver how they are doing."""

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
from dlobd.job.launchers.driver_clock import driver_host
from dlobd.job.launchers.own_address import CHANNEL
from dlobd.job.notices import Notices

if TYPE_CHECKING:
    from pyspark import SparkContext


@contextmanager
def address_book(sc: SparkContext | None, job: Job) -> Iterator[None]:
    """Ranks that are started meanwhile find channel and book in their environment, the book with a secret of this run:
    it travels with each Python function, not by configuration or command line, where others could read it.

    Raises:
        SetupError: the driver cannot listen on its address.
    """
    environment = os.environ if sc is None else sc.environment
    environment[CHANNEL] = job.channel
    if EXCHANGES.declared(job.exchange).inside_step:
        yield  # TensorFlow's servers meet by themselves
        return
    from dlobd.network.exchanges.outside_step import RENDEZVOUS
    from dlobd.network.rendezvous.pmi import PmiServer
    from dlobd.network.rendezvous.store import KeyValueStore

    secret = secrets.token_hex(16)
    host = socket.gethostbyname(driver_host(sc) if sc else "127.0.0.1")
    with ExitStack() as opened:
        book = opened.enter_context(closing(KeyValueStore(host, job.workers, secret.encode())))
        place = {"address": book.address, "secret": secret}
        if job.library == "mpi":
            server = opened.enter_context(closing(PmiServer(host, job.workers, secret.encode())))
            place["pmi"] = server.address
        environment[RENDEZVOUS] = json.dumps(place)
        yield


@contextmanager
def notices(sc: SparkContext | None, job: Job) -> Iterator[Notices | None]:
    """Ranks that are started meanwhile find in their environment where to tell the driver, as they do the address book.

    None without Spark, where the launcher sees its ranks end, and where nothing can be listened to: markers say the
    same."""
    if sc is None:
        yield None
        return
    try:
        told = Notices(socket.gethostbyname(driver_host(sc)), job.workers)
    except OSError as error:
        print(f"dlobd: ranks cannot tell the driver that they are done: {error}", file=sys.stderr)
        yield None
        return
    sc.environment.update(told.environment)
    with closing(told):
        yield told
