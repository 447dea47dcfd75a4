"""Where ranks meet: by which channel, and, if their exchange is dlobd's own, in the driver's address book."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from dlobd.axes import EXCHANGES
from dlobd.job.description import Job
from dlobd.job.launchers.driver_clock import driver_host
from dlobd.job.launchers.own_address import CHANNEL

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
    from dlobd.network.exchanges.meeting import PLACE
    from dlobd.network.formation.address_book import AddressBook

    secret = secrets.token_hex(16)
    host = driver_host(sc) if sc else "127.0.0.1"
    with closing(AddressBook(socket.gethostbyname(host), job.workers, secret.encode())) as book:
        environment[PLACE] = json.dumps({"address": book.address, "secret": secret})
        yield
