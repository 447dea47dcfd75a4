"""Predictions of the wire time of an exchange, from recorded transfers and the alpha-beta model of a channel.

    wire time = sum over fusion buffers of (rounds * alpha + beta * bytes of the busiest direction of a link)

This is Hockney's model (1994) for collectives, as in Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH" (2005), without their term for the summation. Rounds are messages of which each waits
for the one before. Each end has a link of its own: the busiest is that of the rank, or of the parameter server, that
sends or receives most. The residual is the rest: summation, Python, messages of 256 KiB, shared links and cores.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from dlobd.compare.power import student_quantile
from dlobd.errors import UsageError
from dlobd.micro.estimates import FEWEST_SIZES, Fit, fit
from dlobd.micro.plan import Route
from dlobd.micro.recorded import Recorded
from dlobd.micro.results import Results
from dlobd.report.tables import Table

CONFIDENCE = 0.9


def _halving_rounds(ranks: int) -> int:
    """Return the rounds of halving and doubling; ranks above a power of two fold in before, and out after."""
    steps = ranks.bit_length() - 1
    return 2 * steps + 2 * (ranks > 1 << steps)


ROUNDS: Mapping[str, Callable[[int], int]] = {
    "ring": lambda ranks: 2 * (ranks - 1),  # a chunk travels around twice
    "halving-doubling": _halving_rounds,
    "mpi": _halving_rounds,  # MPICH does not report its algorithm
    "ps": lambda _: 2,  # push and pull
}
"""Rounds per fusion buffer, by the number of ranks (`dlobd.network.collectives.all_reduce`). Ranks of the other
exchanges do not wait for each other, or exchange by TensorFlow."""


def busiest_bytes(recorded: Recorded) -> list[int]:
    """Return the bytes of the busiest direction of a link for each fusion buffer of the median exchange.

    MPI reports no transfers: they are taken to be those of halving and doubling, in as few fusion buffers as possible.
    """
    carried: Counter[tuple[int, bool, int | str]] = Counter()
    for source, destination, size, buffer in recorded.median.transfers():
        carried[buffer, True, source] += size
        carried[buffer, False, destination] += size
    if carried or recorded.exchange != "mpi":
        buffers = sorted({buffer for buffer, _, _ in carried})
        return [max(size for (of, _, _), size in carried.items() if of == buffer) for buffer in buffers]
    size = recorded.median.wires[0].bytes
    core = 1 << (recorded.ranks.bit_length() - 1)
    busiest = 2 * size * (core - 1) // core + size * (recorded.ranks > core)
    count = math.ceil(size / recorded.fusion_bytes)
    return [busiest * (k + 1) // count - busiest * k // count for k in range(count)]


def predict(recorded: Recorded, alpha_ns: float, beta_ns_per_byte: float) -> float:
    """Return the wire time of the median exchange in nanoseconds. Raises UsageError: no rounds are known."""
    if recorded.exchange not in ROUNDS:
        why = f"There is no prediction for exchange {recorded.exchange} of run {recorded.run_id}."
        raise UsageError(why, f"name a run with exchange {', '.join(ROUNDS)}")
    buffers = busiest_bytes(recorded)
    rounds = len(buffers) * ROUNDS[recorded.exchange](recorded.ranks)
    return rounds * alpha_ns + sum(buffers) * beta_ns_per_byte


@dataclass(frozen=True, slots=True)
class Row:
    """Predicted and attributed wire time of an exchange.

    bytes: gradients of a rank.
    attributed_ns: median over the exchanges of the slowest rank's wire time; `least_ns` and `most_ns` are its range.
    """

    exchange: str
    bytes: int
    predicted_ns: float
    attributed_ns: float
    least_ns: int
    most_ns: int

    @property
    def residual_ns(self) -> float:
        return self.attributed_ns - self.predicted_ns


def rows(runs: Iterable[Recorded], alpha_ns: float, beta_ns_per_byte: float) -> list[Row]:
    """Return one row per run. Raises UsageError: no rounds are known for its exchange."""
    found = []
    for run in runs:
        times_ns = [call.ns for call in run.calls]
        attributed_ns = median(times_ns), min(times_ns), max(times_ns)
        predicted_ns = predict(run, alpha_ns, beta_ns_per_byte)
        found.append(Row(run.title, run.median.wires[0].bytes, predicted_ns, *attributed_ns))
    return found


def fitted(results: Results, recorded: Recorded) -> tuple[Route, Fit]:
    """Return the route of the results that the exchange used, with its fit. Raises UsageError: there is none."""
    asked = recorded.library, recorded.channel.transport
    routes = [one for one in results.routes() if (one.library, one.transport) == asked and not one.exchange]
    routes = [one for one in routes if one.channel == recorded.channel] or routes
    fits = [(route, found) for route in routes if (found := fit(results, route))]
    if len(fits) == 1:
        return fits[0]
    channel, library = recorded.channel, recorded.library
    what = f"Run {recorded.run_id} used {library} over {channel}, and the results have"
    what += f" {len(fits)} such routes." if fits else f" no such route with latencies of {FEWEST_SIZES} sizes."
    raise UsageError(what, f"dlobd micro latency --channel {channel} --library {library} -o FILE")


def table(found: Sequence[Row], route: Route, fit: Fit) -> Table:
    """Return the table of predictions, with the fit that they are from."""
    cells = [
        (
            row.exchange,
            row.bytes,
            f"{row.predicted_ns / 1e6:,.4g}",
            f"{row.attributed_ns / 1e6:,.4g} ({row.least_ns / 1e6:,.4g} to {row.most_ns / 1e6:,.4g})",
            f"{row.residual_ns / 1e6:+,.4g}",
            f"{row.residual_ns / row.predicted_ns:+.0%}" if row.predicted_ns else None,
        )
        for row in found
    ]
    heads = "exchange | bytes:number | predicted, ms | attributed, ms | residual, ms | residual, %"
    note = f"{route.label}: alpha {fit.alpha.value / 1e3:.4g} us, beta {fit.beta.value:.3g} ns per byte, "
    note += f"{fit.alpha.launches} launches. Attributed: median over the exchanges, and their range."
    return Table("Wire time of an exchange", heads, cells, note)


# ---- intervals over models


@dataclass(frozen=True, slots=True)
class Measured:
    """Wire times of a model's exchange over a link. Prediction and measurement must be of different launches."""

    model: str
    exchange: str
    link: str
    predicted_ns: float
    measured_ns: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Prediction interval of a point, from `others` points of other models; None with fewer than two of them."""

    point: Measured
    others: int
    interval_ns: tuple[float, float] | None


def leave_one_out(points: Sequence[Measured]) -> list[Predicted]:
    """Return the 90 % prediction interval of each point, from the points of all other models.

    With the n residuals r = ln(measured / predicted) of the other models, their mean m and standard deviation s, the
    logarithm of the measured time lies in

        ln(predicted) + m +- t(0.95, n - 1) * s * sqrt(1 + 1/n)

    This is Student's interval for one further value of a normal distribution (Hahn, "Factors for Calculating Two-Sided
    Prediction Intervals for Samples from a Normal Distribution", JASA 64, 1969). It takes the residuals for
    independent; those of one model are not, so that with few models the interval is too narrow.
    """
    found = []
    for point in points:
        others = [math.log(one.measured_ns / one.predicted_ns) for one in points if one.model != point.model]
        count, interval_ns = len(others), None
        if count > 1:
            half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * stdev(others) * math.sqrt(1 + 1 / count)
            middle = math.log(point.predicted_ns) + fmean(others)
            interval_ns = math.exp(middle - half), math.exp(middle + half)
        found.append(Predicted(point, count, interval_ns))
    return found
