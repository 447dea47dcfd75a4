"""Exchanges that a run recorded: transfers and wire times of each exchange outside of the compiled step.

A transfer is what one end sends to another end for one fusion buffer: the span `wire` of a rank has the sum of its
messages. Ring and halving-doubling send it as several messages, in several rounds.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dlobd import spans as kinds
from dlobd.bundle.store import Bundle
from dlobd.channel import Channel
from dlobd.errors import UsageError
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess, trainers
from dlobd.experiment import channels
from dlobd.micro.payload import MIB, Payload
from dlobd.micro.plan import Point
from dlobd.report.tables import Table
from dlobd.schema import OwnJob

Transfer = tuple[int | str, int | str, int, int]
"""Source, destination, bytes and fusion buffer. An end is the number of a rank, or the name of a server such as
ps-0."""

REMEDY = "dlobd run --set exchange=ring, or name another run"


@dataclass(frozen=True, slots=True)
class Wire:
    """Span of one rank in one exchange, with the bytes of its gradients and its transfers in recorded order."""

    start_ns: int
    end_ns: int
    bytes: int
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Exchange of one training step: the spans of all ranks, by rank."""

    number: int
    wires: tuple[Wire, ...]

    @property
    def ns(self) -> int:
        """Wire time of the slowest rank. Ranks begin together after a barrier, except in asynchronous exchanges."""
        return max(wire.end_ns - wire.start_ns for wire in self.wires)

    def transfers(self) -> Iterator[Transfer]:
        """Yield each transfer once: two ranks record a transfer between them, one rank a transfer of a server."""
        for rank, wire in enumerate(self.wires):
            yield from (one for one in wire.transfers if one[0] == rank or isinstance(one[0], str))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Exchanges of a run, in the order of their steps. Steps that the recorder summed are left out."""

    run_id: str
    exchange: str
    channel: Channel
    library: str
    model: str
    ranks: int
    fusion_bytes: int
    calls: tuple[Call, ...]

    @property
    def median(self) -> Call:
        """The exchange with the median wire time; the faster one of two."""
        return sorted(self.calls, key=lambda call: call.ns)[(len(self.calls) - 1) // 2]

    @property
    def title(self) -> str:
        return f"{self.model}, {self.exchange}, {self.ranks} ranks"


def exchanges(bundle_path: Path) -> Recorded:
    """Read the exchanges that all ranks recorded. Raises BundleError; UsageError: the run has none."""
    run = Bundle(bundle_path).read()
    chosen = run.configuration
    if isinstance(chosen, OwnJob):
        raise UsageError(f"Run {run.run_id} is your own job: dlobd knows neither its exchange nor its channel.", REMEDY)
    by_rank = {one.rank: wires for one in trainers(Evidence(bundle_path).processes) if (wires := _wires(one))}
    ranks = range(chosen.workers)
    numbers = set.intersection(*({*by_rank.get(rank, ())} for rank in ranks))
    if not numbers:
        what = f"Run {run.run_id} has no exchange outside of the compiled step that all ranks recorded"
        raise UsageError(f"{what}: exchange {chosen.exchange}, {len(by_rank)} of {len(ranks)} ranks.", REMEDY)
    calls = (Call(number, tuple(by_rank[rank][number] for rank in ranks)) for number in sorted(numbers))
    return Recorded(
        run.run_id,
        chosen.exchange,
        chosen.channel,
        channels.library(chosen),
        chosen.model,
        chosen.workers,
        chosen.exchange_fusion_mb * MIB,
        tuple(calls),
    )


def _wires(process: RecordedProcess) -> dict[int, Wire]:
    spans = process.spans.of_kind(kinds.WIRE)
    whole = spans.where(~spans.truncated & spans.has("call", "transfers"))
    return {
        span.attrs["call"]: Wire(
            int(span.start_ns),
            int(span.end_ns),
            span.attrs.get("bytes", 0),
            tuple(tuple(transfer) for transfer in span.attrs["transfers"]),
        )
        for span in whole
    }


def sizes(recorded: Recorded) -> dict[int, float]:
    """Return the mean number of transfers in an exchange, by size. Raises UsageError: the run recorded no transfer."""
    counts = Counter(size for call in recorded.calls for _, _, size, _ in call.transfers() if size)
    if not counts:
        raise _no_transfers(recorded)
    return {size: count / len(recorded.calls) for size, count in sorted(counts.items())}


def histogram(recorded: Recorded) -> Table:
    """Return the table of transfers by size, over all exchanges. Raises UsageError: the run recorded no transfer."""
    counts = sizes(recorded)
    total = sum(size * count for size, count in counts.items())
    rows = [(size, count, size * count / total) for size, count in counts.items()]
    heads = "bytes of a transfer:number | per exchange:number | share of the bytes:share"
    note = "A transfer: all messages from one end to another for one fusion buffer."
    return Table(f"Recorded transfers: {recorded.title}, {len(recorded.calls)} exchanges", heads, rows, note)


def replay_points(recorded: Recorded, seconds: float, warm_up_s: float) -> tuple[Point, ...]:
    """Return the point of benchmark `replay`: what rank 0 sends in the median exchange.

    Before each exchange it pauses as long as rank 0 did in the median. Only the span of the whole exchange has a time,
    not its transfers: the replay sends one after another, without rank 0's waits for the messages of other ends.

    Raises UsageError: the run recorded no transfer of rank 0.
    """
    sizes = tuple(size for source, _, size, _ in recorded.median.wires[0].transfers if source == 0 and size)
    if not sizes:
        raise _no_transfers(recorded)
    pauses_ns = [
        after.wires[0].start_ns - before.wires[0].end_ns
        for before, after in itertools.pairwise(recorded.calls)
        if after.number == before.number + 1  # others have steps between them that the recorder summed
    ]
    pause_ns = max(0, round(median(pauses_ns))) if pauses_ns else 0
    return (Point("replay", Payload(recorded.title, sizes), seconds, warm_up_s, pause_ns=pause_ns),)


def _no_transfers(recorded: Recorded) -> UsageError:
    return UsageError(f"Run {recorded.run_id} has no transfers: exchange {recorded.exchange} reports none.", REMEDY)
