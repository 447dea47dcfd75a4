"""A user's request: benchmarks, channels, libraries, payloads and limits. Builds the plans of the launches."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dlobd.axes import DATASETS, EXCHANGES, LIBRARIES, MODELS
from dlobd.channel import TRANSPORTS, Channel
from dlobd.errors import UsageError
from dlobd.experiment import channels
from dlobd.job.datasets.base import dataset_of
from dlobd.micro import payload as payloads
from dlobd.micro.launch import Plan
from dlobd.micro.payload import BUFFERS, CLASSES, Payload
from dlobd.micro.plan import BARE, BENCHMARKS, WINDOW, Point, Route
from dlobd.micro.ranks import MPI_ALLREDUCE
from dlobd.registry import unknown
from dlobd.schema import Experiment

DEFAULT = ("latency", "bandwidth", "rate")
"""Benchmarks of the default table."""

SIZES = {
    "latency": "8,1K,4K,16K,64K,256K,1M,4M",
    "bandwidth": "4K,64K,1M,4M",
    "bidirectional": "4K,64K,1M,4M",
    "rate": "8",
    "put": "8,4K,64K,1M",
    "get": "8,4K,64K,1M",
    "exchange": "4,1K,64K,1M,16M,64M",
}
"""Default sizes by benchmark, as in OSU's and NVIDIA's suites; ps and replay have payloads instead."""

QUICK_SIZES = dict.fromkeys(SIZES, "8,64K,1M") | {"rate": "8", "bandwidth": "1M"}

DEEPBENCH = (100_000, 3_097_600, 4_194_304, 6_553_600, 16_777_217, 38_360_000, 64_500_000)
"""Floats of DeepBench's all-reduces (baidu-research/DeepBench, code/nvidia/nccl_single_all_reduce.cu)."""

LARGE_FLOATS = 20_000_000  # DeepBench's larger arrays are measured with two ranks only, because of their memory

LAUNCHES, QUICK_LAUNCHES = 6, 2
SECONDS, QUICK_SECONDS = 0.5, 0.1
WARM_UP_S = 0.1
FEWEST_ARRIVALS = 10  # expected calls of an open loop

DATASET = "cifar10"  # data set of models that name none


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a user: the options of `dlobd micro`, whose helps describe them. Empty values are defaults.

    replay: points of benchmark `replay`, which are read from a run.
    """

    benchmarks: Sequence[str] = DEFAULT
    channels: Sequence[str] = ()
    libraries: Sequence[str] = ()
    exchanges: Sequence[str] = ()
    sizes: str = ""
    scheme: str = ""
    buffers: int = BUFFERS
    classes: str = ",".join(CLASSES)
    prefer: str = "large"
    seed: int = 0
    serialized: bool = False
    seconds: float = 0.0
    warm_up_s: float = WARM_UP_S
    launches: int = 0
    window: int = WINDOW
    rate: float = 0.0
    servers: int = 2
    workers: int = 3
    ranks: int = 2
    model: str = ""
    quick: bool = False
    pairs: bool = False
    replay: tuple[Point, ...] = ()

    def __post_init__(self) -> None:
        for name in self.benchmarks:
            if name not in BENCHMARKS:
                raise UsageError(unknown("benchmark", name, BENCHMARKS), "dlobd micro --help")
        for name in self.libraries:
            if name != BARE:
                LIBRARIES.row(name)
        for name in self.exchanges:
            if name != MPI_ALLREDUCE:
                EXCHANGES.row(name)
        if self.rate and self.rate * self.point_seconds < FEWEST_ARRIVALS:
            what = f"{self.rate:g} calls per second are less than {FEWEST_ARRIVALS} calls in {self.point_seconds:g} s."
            raise UsageError(what, "increase --rate or --time")
        for text in self.channels:
            try:
                transport = Channel.parse(text).transport
            except ValueError as error:
                raise UsageError(f"--channel: {error}.", "dlobd list channels") from error
            if transport not in TRANSPORTS:
                raise UsageError(unknown("channel", transport, TRANSPORTS), "dlobd list channels")

    @property
    def repeats(self) -> int:
        """Number of launches of each route."""
        return self.launches or (QUICK_LAUNCHES if self.quick else LAUNCHES)

    @property
    def point_seconds(self) -> float:
        """Recorded duration of a point."""
        return self.seconds or (QUICK_SECONDS if self.quick else SECONDS)

    @property
    def processes(self) -> int:
        """Number of sites that the plans need."""
        needs = {"ps": self.servers + self.workers, "exchange": self.ranks}
        return max(self.ranks if self.pairs else 2, *(needs.get(name, 2) for name in self.benchmarks))

    def plans(self, default_channels: Sequence[str]) -> tuple[list[Plan], list[str]]:
        """Return the plans, and remarks on libraries that cannot be measured. Raises UsageError: nothing remains."""
        plans: list[Plan] = []
        left_out: list[str] = []
        between = [name for name in self.benchmarks if name not in ("ps", "exchange")]
        for channel in self.channels or tuple(default_channels):
            for library in self._libraries(channel, left_out) if {*self.benchmarks} - {"exchange"} else ():
                points = tuple(self._points_between(between, library))
                route = Route(channel, library)
                if points:
                    plans.append(Plan(route, points, pins=True))
                if "ps" in self.benchmarks:
                    payloads = self._single("ps") if self.sizes and not self.scheme else [self._payload()]
                    plans.append(Plan(route, tuple(self._point("ps", one) for one in payloads), self.servers))
            if "exchange" in self.benchmarks:
                plans += self._exchange_plans(channel, left_out)
        if not plans:
            why = " ".join(left_out) or "No library carries the channel."
            raise UsageError(f"Nothing can be measured. {why}", "dlobd list libraries")
        return plans, left_out

    def _libraries(self, channel: str, left_out: list[str]) -> Iterator[str]:
        """Yield the libraries that carry a channel, and the reference."""
        transport, device = Channel(channel).transport, Channel(channel).device
        carry = [name for name in TRANSPORTS[transport].libraries if name in channels.USES["ring"]]
        if TRANSPORTS[transport].device == "interface":
            carry.append(BARE)
        for name in self.libraries or carry:
            reason = None if name == BARE else LIBRARIES.row(name).reason()
            if name not in carry:
                reason = f"it does not carry {transport} between two processes"
            elif name == "ucx" and transport == "tcp" and not device:
                reason = "UCX finds no route over loopback; name an interface, as in --channel tcp@eth0"
            if not reason:
                yield name
            elif self.libraries and self.channels:
                raise UsageError(f"Library {name} cannot be measured over {channel}: {reason}.", "dlobd list libraries")
            else:
                left_out.append(f"Without {name} over {channel}: {reason}.")

    def _points_between(self, names: Sequence[str], library: str) -> Iterator[Point]:
        one_sided = library != BARE and LIBRARIES.get(library).capabilities.one_sided
        for name in names:
            if BENCHMARKS[name].one_sided and not one_sided:
                continue
            if name == "replay":
                yield from self.replay or [self._point(name, self._payload())]
                continue
            for payload in [self._payload()] if self.scheme else self._single(name):
                yield self._point(name, payload)

    def _point(self, name: str, payload: Payload) -> Point:
        rate = self.rate if name == "latency" else 0.0
        return Point(name, payload, self.point_seconds, self.warm_up_s, window=self.window, rate=rate, seed=self.seed)

    def _payload(self) -> Payload:
        scheme = self.scheme or "uniform"
        return payloads.payload(scheme, self.buffers, self.classes.split(","), self.prefer, self.seed, self.serialized)

    def _single(self, name: str) -> Iterator[Payload]:
        text = self.sizes or (QUICK_SIZES if self.quick else SIZES)[name]
        for part in text.split(","):
            yield replace(payloads.payload(part), serialized=self.serialized)

    def _exchange_plans(self, channel: str, left_out: list[str]) -> Iterator[Plan]:
        transport = Channel(channel).transport
        for name in self.exchanges or (MPI_ALLREDUCE, "ring", "halving-doubling", "ps"):
            # MPI_Allreduce sums one array; gradients are packed by the exchange that uses it
            exchange = "mpi" if name == MPI_ALLREDUCE and self.model else name
            carry = ("mpi",) if name == MPI_ALLREDUCE else channels.libraries(name, transport)
            chosen = [one for one in self.libraries if one in carry] if self.libraries else carry[:1]
            if not chosen:
                left_out.append(f"Without {name} over {channel}: it needs library {' or '.join(carry)}.")
            for library in chosen:
                if library in LIBRARIES.names() and (reason := LIBRARIES.row(library).reason()):
                    left_out.append(f"Without {name} over {channel}: {reason}.")
                    continue
                whole = bool(self.model) or name.startswith("tf-")
                yield Plan(Route(channel, library, exchange), tuple(self._arrays(whole)), servers=0)

    def _arrays(self, whole: bool) -> Iterator[Point]:
        if self.model:
            shapes = gradient_shapes(self.model)
            size = 4 * sum(map(math.prod, shapes))
            yield replace(self._point("exchange", Payload(self.model, (size,))), shapes=shapes, whole=True)
            return
        if self.sizes == "deepbench":
            counts = [count for count in DEEPBENCH if self.ranks == 2 or count < LARGE_FLOATS]
        else:
            counts = [max(1, payload.bytes // 4) for payload in self._single("exchange")]
        for count in counts:
            name = f"{count:,} floats" if self.sizes == "deepbench" else payloads.name_of(4 * count)
            yield replace(self._point("exchange", Payload(name, (4 * count,))), shapes=((count,),), whole=whole)


def gradient_shapes(model: str, experiment: Experiment | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a model's gradients, by default for the data set for which it was published.

    Raises UsageError, SetupError: there is no such model.
    """
    data = dataset_of(experiment) if experiment else DATASETS.declared(MODELS.row(model).dataset or DATASET)
    variables = MODELS.get(model)(data.shape, data.classes, 0).trainable_variables
    return tuple(tuple(map(int, one.shape)) for one in variables)
