"""Which library carries an experiment's channel, for which exchange. Pure; docs/channels.md has it as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dlobd.axes import CHANNELS, EXCHANGES, LIBRARIES
from dlobd.network.channels.spec import ChannelSpec
from dlobd.schema import Experiment

AUTO = "auto"

CARRIES = {
    "tcp": ("tensorflow", "sockets", "grpc", "grpc-stream", "ucx", "mpi"),
    "ipoib": ("tensorflow", "sockets", "grpc", "grpc-stream", "ucx", "mpi"),
    "rdma": ("ucx", "mpi"),
    "shm": ("ucx", "mpi"),
    "inproc": ("inproc",),
}
"""Channel to the libraries that can carry it, the first choice first, as they declare it; a test compares."""

_MESSAGES = ("sockets", "grpc", "grpc-stream", "ucx")
"""Those that send what they are given to whom they are told."""

USES = {
    "tf-ring": ("tensorflow",),
    "tf-ps": ("tensorflow",),
    "ring": _MESSAGES,
    "halving-doubling": _MESSAGES,
    "ps": _MESSAGES,
    "ps-async": _MESSAGES,
    "mpi": ("mpi",),
}
"""Exchange to the libraries that it can go over."""

SERVED = ("tf-ps", "ps", "ps-async")
"""The exchanges that have parameter servers."""

ASYNCHRONOUS = ("ps-async",)
"""Those in which ranks do not wait for each other; a test compares."""

_PLAIN = {
    "optimiser": "sgd",
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup_epochs": 0.0,
    "max_seconds": 0,
    "target_accuracy": 0.0,
}
"""What an asynchronous exchange is limited to: an update that is linear in the gradients and the same at any time
(`dlobd.network.exchanges.ps.accumulating`), and an end that ranks need not agree on."""

_WHY_PLAIN = "its ranks take plain steps of SGD, and do not agree on when to end"


def libraries(exchange: str, transport: str) -> tuple[str, ...]:
    """Those that can carry this exchange over this channel, the first choice first."""
    return tuple(name for name in CARRIES.get(transport, ()) if name in USES.get(exchange, ()))


def library(exchange: str, channel: str, asked: str) -> str:
    """The library that is used where `asked` was asked for; `channel` and it have been checked."""
    if asked != AUTO:
        return asked
    found = libraries(exchange, ChannelSpec.parse(channel).transport)
    return found[0] if found else AUTO


def wrong(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """(field, what is wrong, remedy) of each setting of channel and exchange that cannot work, or has no effect."""
    exchange, asked = experiment.exchange, experiment.channel_library
    transport = ChannelSpec.parse(experiment.channel).transport
    found = libraries(exchange, transport)
    if not found:
        others = [name for name in EXCHANGES.names() if libraries(name, transport)]
        where = [name for name in CHANNELS.names() if libraries(exchange, name)]
        why = f"exchange {exchange} cannot go over channel {transport}: it needs {_or(where)}."
        yield "channel", why, f"exchange = {_or(others)}" if others else f'channel = "{where[0]}"'
    elif asked not in (AUTO, *found):
        carried = f"exchange {exchange} over channel {transport} goes by {_or(found)}"
        yield "channel_library", f"library {asked} cannot carry it: {carried}.", f'channel_library = "{AUTO}"'
    for field, plain in _PLAIN.items() if exchange in ASYNCHRONOUS else ():
        if (value := getattr(experiment, field)) != plain:
            why = f"{field} {value} does not go with exchange {exchange}: {_WHY_PLAIN}."
            yield field, why, f"{field} = {json.dumps(plain)}, or exchange = ps"
    if exchange not in SERVED and experiment.exchange_servers != 1:
        why = f"exchange_servers {experiment.exchange_servers} has no effect with exchange {exchange}."
        yield "exchange_servers", why, f"exchange_servers = 1, or exchange = {_or(SERVED)}"
    elif experiment.exchange_servers > experiment.workers:
        asked_for, workers = experiment.exchange_servers, experiment.workers
        why = f"exchange_servers {asked_for} are more than workers {workers}: each has one at most."
        yield "exchange_servers", why, f"exchange_servers = {experiment.workers} or fewer"


def reason(exchange: str, transport: str, name: str) -> str:
    """Why an exchange does not go over a channel by a library; empty where it does."""
    if name not in USES.get(exchange, ()):
        return f"exchange {exchange} does not use it"
    if name not in CARRIES.get(transport, ()):
        return f"{name} does not carry {transport}"
    return LIBRARIES.row(name).reason() or ""


def _or(names: tuple[str, ...] | list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
