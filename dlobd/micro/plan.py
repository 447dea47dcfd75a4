"""Plans of launches: benchmarks, routes and points. A plan goes to each process as one line of JSON."""

from dataclasses import dataclass
from typing import Literal

from dlobd.channel import Channel
from dlobd.micro.payload import MIB, Payload

Metric = Literal["us", "MB/s", "1/s", "ms"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Kind of measurement.

    metric: unit of its figure; `us` and `ms` are times per call, where less is better.
    one_sided: True if the library must access the memory of the other end.
    """

    name: str
    title: str
    metric: Metric
    one_sided: bool = False

    @property
    def unit_ns(self) -> float | None:
        """Measured nanoseconds of a unit of the figure; None if it is no time. A latency is half of a round trip."""
        return {"us": 2e3 if self.name == "latency" else 1e3, "ms": 1e6}.get(self.metric)


BENCHMARKS = {
    one.name: one
    for one in (
        Benchmark("latency", "message and its echo; half of the round trip", "us"),
        Benchmark("bandwidth", "messages in one direction", "MB/s"),
        Benchmark("bidirectional", "messages in both directions at once", "MB/s"),
        Benchmark("rate", "short messages in one direction", "1/s"),
        Benchmark("ps", "each worker calls each parameter server", "1/s"),
        Benchmark("exchange", "all-reduce, or exchange of gradients, between ranks", "ms"),
        Benchmark("put", "write into the memory of the other end, and flush", "us", one_sided=True),
        Benchmark("get", "read from the memory of the other end", "us", one_sided=True),
        Benchmark("replay", "messages of a recorded exchange, in order and spacing", "ms"),
    )
}
"""Benchmarks by name."""

WINDOW = 32  # default of `ucx_perftest` (option -O)

MOST_BYTES = 16 * MIB
"""Bytes of a batch of messages, which stay in memory until they are verified; at least two messages."""

MOST_MESSAGES = 1024  # messages of a batch


@dataclass(frozen=True, slots=True)
class Point:
    """Measurement with one payload.

    Args:
        benchmark: key of BENCHMARKS.
        seconds: duration of the timed part, which ends after the batch in progress.
        warm_up_s: duration of the part before it, which is not recorded.
        calls: upper bound of the calls of an exchange; 0 for no bound.
        window: messages in flight, if the library makes progress in the background.
        rate: calls per second of an open loop with Poisson arrivals; 0 for a closed loop.
        seed: seed of the arrivals.
        pause_ns: pause before each batch of a replay, outside of its time.
        shapes: shapes of the float32 tensors of an exchange.
        whole: True to measure a whole exchange, False for its all-reduce of one array.
    """

    benchmark: str
    payload: Payload
    seconds: float = 1.0
    warm_up_s: float = 0.1
    calls: int = 0
    window: int = WINDOW
    rate: float = 0.0
    seed: int = 0
    pause_ns: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    whole: bool = False

    @property
    def is_plain(self) -> bool:
        """True for a message of one buffer in a closed loop, without serialization."""
        return len(self.payload.sizes) == 1 and not self.payload.serialized and not self.rate

    @property
    def messages(self) -> int:
        """Messages of a batch."""
        if self.benchmark == "replay":
            return len(self.payload.sizes)
        return max(2, min(MOST_MESSAGES, MOST_BYTES // max(1, self.payload.bytes)))


@dataclass(frozen=True, slots=True)
class Route:
    """Channel, library, and for the benchmark `exchange` the exchange. Library `bare` is the reference: Python's
    sockets without any protocol, over the same interface."""

    channel: str
    library: str
    exchange: str = ""
    servers: int = 1

    @property
    def transport(self) -> str:
        return Channel(self.channel).transport

    @property
    def device(self) -> str:
        return Channel(self.channel).device

    @property
    def label(self) -> str:
        """Name in tables."""
        name = f"{self.exchange} ({self.library})" if self.exchange else self.library
        return f"{name} {self.channel}"


@dataclass(frozen=True, slots=True)
class Role:
    """Plan of one process of a launch.

    Args:
        rank: number of the process; DRIVER for the process with the key-value store of an exchange.
        servers: number of processes that listen: the first ones. The others connect to each of them.
        addresses: addresses of the hosts of all processes, by rank.
        secret: secret of the launch.
        book: address of the driver's store, for the benchmark `exchange`.
        core: number of the core that the process is bound to; None for all cores.
        deadline_s: duration after which the process ends itself.
    """

    route: Route
    points: tuple[Point, ...]
    rank: int
    servers: int
    addresses: tuple[str, ...]
    secret: str
    book: str = ""
    core: int | None = None
    deadline_s: float = 600.0

    @property
    def listens(self) -> bool:
        return self.rank < self.servers


DRIVER = -1
BARE = "bare"
