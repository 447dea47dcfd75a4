"""Selects the channel library of an exchange, and finds contradictory settings of channel and exchange. Pure."""

import json
from collections.abc import Iterator

from dlobd.axes import CHANNELS, EXCHANGES
from dlobd.channel import TRANSPORTS
from dlobd.experiment.settings import listed
from dlobd.schema import Experiment

AUTO = "auto"

_MESSAGES = ("sockets", "grpc", "ucx")
"""Libraries that send messages between any two ranks."""

USES = {
    "tf-ring": ("tensorflow",),
    "tf-ps": ("tensorflow",),
    "ring": _MESSAGES,
    "halving-doubling": _MESSAGES,
    "ps": _MESSAGES,
    "ps-async": _MESSAGES,
    "mpi": ("mpi",),
}
"""Libraries that an exchange can use, by exchange."""

SERVED = ("tf-ps", "ps", "ps-async")
"""Exchanges that have parameter servers."""

ASYNCHRONOUS = ("ps-async",)
"""Exchanges without waits between ranks. A test compares the list with the declarations of the exchanges."""

_PLAIN = {
    "optimiser": "sgd",
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup_epochs": 0.0,
    "max_seconds": 0,
    "target_accuracy": 0.0,
}
"""Settings that an asynchronous exchange requires: the update must be linear in the gradients and equal at all steps
(`dlobd.network.exchanges.ps.servers`), and training must end without a vote of the ranks."""

_WHY_PLAIN = "it supports only plain SGD without early stopping"


def libraries(exchange: str, transport: str) -> tuple[str, ...]:
    """Return the libraries that can carry an exchange over a transport, in order of preference."""
    if transport not in TRANSPORTS:
        return ()
    return tuple(name for name in TRANSPORTS[transport].libraries if name in USES.get(exchange, ()))


def library(experiment: Experiment) -> str:
    """Return the library for a checked experiment: the requested library, or for `auto` the first possible library."""
    if experiment.channel_library != AUTO:
        return experiment.channel_library
    possible = libraries(experiment.exchange, experiment.channel.transport)
    return possible[0] if possible else AUTO


def wrong(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) for each setting of channel or exchange that is impossible or has no effect."""
    exchange, requested = experiment.exchange, experiment.channel_library
    transport = experiment.channel.transport
    possible = libraries(exchange, transport)
    if not possible:
        others = [name for name in EXCHANGES.names() if libraries(name, transport)]
        where = [name for name in CHANNELS.names() if libraries(exchange, name)]
        why = f"exchange {exchange} cannot use channel {transport}: it needs {listed(where, 'or')}."
        yield "channel", why, f"exchange = {listed(others, 'or')}" if others else f'channel = "{where[0]}"'
    elif requested not in (AUTO, *possible):
        carried = f"exchange {exchange} over channel {transport} needs {listed(possible, 'or')}"
        yield "channel_library", f"library {requested} is not possible: {carried}.", f'channel_library = "{AUTO}"'
    for field, plain in _PLAIN.items() if exchange in ASYNCHRONOUS else ():
        if (value := getattr(experiment, field)) != plain:
            why = f"{field} {value} is not possible with exchange {exchange}: {_WHY_PLAIN}."
            yield field, why, f"{field} = {json.dumps(plain)}, or exchange = ps"
    servers, workers = experiment.exchange_servers, experiment.workers
    if exchange not in SERVED and servers != 1:
        why = f"exchange_servers {servers} has no effect with exchange {exchange}."
        yield "exchange_servers", why, f"exchange_servers = 1, or exchange = {listed(SERVED, 'or')}"
    elif servers > workers:
        why = f"exchange_servers {servers} exceeds workers {workers}: each worker runs at most one server."
        yield "exchange_servers", why, f"exchange_servers = {workers} or fewer"
