"""Predictions of the wire time of an exchange, from recorded transfers and the alpha-beta model of a channel.

    wire time = sum over fusion buffers of (rounds * alpha + beta * bytes of the busiest direction of a link)

This is Hockney's model (1994) for collectives, as in Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH" (2005), without their term for the summation. Rounds are messages of which each waits
for the one before. Each end has a link of its own: the busiest is that of the rank, or of the parameter server, that
sends or receives most. Loopback is one link for all ends. The residual is the rest: summation, Python, messages of 256
KiB, shared links and cores.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t as student

from dlobd.channel import over_ip
from dlobd.compare.median import median
from dlobd.errors import UsageError
from dlobd.micro.estimates import FEWEST_SIZES, Fit, fit
from dlobd.micro.recorded import Recorded
from dlobd.micro.results import Results
from dlobd.network.collectives.all_reduce import SMALL_BYTES

CONFIDENCE = 0.9


def _halving_rounds(ranks: int, size: int) -> int:
    """Return the rounds of halving and doubling; ranks above a power of two fold in before, and out after."""
    steps = ranks.bit_length() - 1
    return (1 if size <= SMALL_BYTES else 2) * steps + 2 * (ranks > 1 << steps)


ROUNDS: Mapping[str, Callable[[int, int], int]] = {
    "ring": lambda ranks, _: 2 * (ranks - 1),  # a chunk travels around twice
    "halving-doubling": _halving_rounds,
    "mpi": lambda ranks, _: _halving_rounds(ranks, SMALL_BYTES + 1),  # MPICH does not report its algorithm
    "ps": lambda *_: 2,  # push and pull
}
"""Rounds per fusion buffer, by the number of ranks and the bytes of the gradients
(`dlobd.network.collectives.all_reduce`). Ranks of the other exchanges do not wait for each other, or exchange by
TensorFlow."""


def busiest_bytes(recorded: Recorded) -> list[int]:
    """Return the bytes of the busiest direction of a link for each fusion buffer of the median exchange.

    Loopback is one link for all ends and for both directions. MPI reports no transfers: they are taken to be those of
    halving and doubling, in as few fusion buffers as possible.
    """
    loopback = over_ip(recorded.channel.transport) and not recorded.channel.device
    carried: Counter[tuple[int, object]] = Counter()
    for source, destination, size, buffer in recorded.median.transfers():
        for direction in ("loopback",) if loopback else ((source, "sends"), (destination, "receives")):
            carried[buffer, direction] += size
    if carried or recorded.exchange != "mpi":
        buffers = sorted({buffer for buffer, _ in carried})
        return [max(size for (of, _), size in carried.items() if of == buffer) for buffer in buffers]
    size = recorded.median.wires[0].bytes
    core = 1 << (recorded.ranks.bit_length() - 1)
    busiest = 2 * size * (core - 1) // core + size * (recorded.ranks > core)
    if loopback:
        busiest = 2 * size * (recorded.ranks - 1)  # the sum over all ranks
    count = math.ceil(size / recorded.fusion_bytes)
    return [busiest * (k + 1) // count - busiest * k // count for k in range(count)]


def predict(recorded: Recorded, alpha_ns: float, beta_ns_per_byte: float) -> float:
    """Return the wire time of the median exchange in nanoseconds. Raises UsageError: no rounds are known."""
    if recorded.exchange not in ROUNDS:
        why = f"There is no prediction for exchange {recorded.exchange} of run {recorded.run_id}."
        raise UsageError(why, f"name a run with exchange {', '.join(ROUNDS)}")
    buffers = busiest_bytes(recorded)
    rounds = len(buffers) * ROUNDS[recorded.exchange](recorded.ranks, recorded.median.wires[0].bytes)
    return rounds * alpha_ns + sum(buffers) * beta_ns_per_byte


Bounds = tuple[float, float | None, float | None]
"""Value with its lower and upper bound, which are None if they are unknown."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted and attributed wire time of a run's exchange over a link, in nanoseconds.

    link: name of the file with the latencies.
    predicted: median over the launches of the fit, with its 90 % interval.
    attributed: median over the exchanges of the slowest rank's wire time, with the range of the middle 90 %.
    """

    run: Recorded
    link: str
    predicted: Bounds
    attributed: Bounds

    @property
    def residual(self) -> Bounds:
        """Difference. Its bounds are the extremes of the bounds of both."""
        (value, low, high), (attributed, least, most) = self.predicted, self.attributed
        if low is None or high is None or least is None or most is None:
            return attributed - value, None, None
        return attributed - value, least - high, most - low

    @property
    def log_ratio(self) -> float:
        return math.log(self.attributed[0] / self.predicted[0])


def predicted(run: Recorded, link: str, fit: Fit) -> Prediction:
    """Predict a run's median exchange from the fit of a channel. Raises UsageError: no rounds are known for it.

    Each launch of the fit gives one prediction, because the errors of its alpha and beta depend on each other.
    """
    found = median((predict(run, alpha, beta) for alpha, beta in fit.launches), CONFIDENCE)
    assert found is not None
    low, value, high = np.quantile([call.ns for call in run.calls], [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2])
    return Prediction(run, link, (found.value, found.low, found.high), (float(value), float(low), float(high)))


def from_other_models(one: Prediction, every: Sequence[Prediction]) -> tuple[float, float] | None:
    """Return the 90 % prediction interval of a wire time in nanoseconds, from the residuals of all other models.

    With the n residuals r = ln(attributed / predicted) of the other models, their mean m and standard deviation s, the
    logarithm of the time lies in

        ln(predicted) + m +- t(0.95, n - 1) * s * sqrt(1 + 1/n)

    This is Student's interval for one further value of a normal distribution (Hahn, "Factors for Calculating Two-Sided
    Prediction Intervals for Samples from a Normal Distribution", JASA 64, 1969). It takes the residuals for
    independent; those of one model are not, so that with few models the interval is too narrow. None with fewer than
    two residuals.
    """
    others = [other.log_ratio for other in every if other.run.model != one.run.model]
    if (count := len(others)) < 2:
        return None
    half = float(student.ppf((1 + CONFIDENCE) / 2, count - 1)) * stdev(others) * math.sqrt(1 + 1 / count)
    middle = math.log(one.predicted[0]) + fmean(others)
    return math.exp(middle - half), math.exp(middle + half)


def fitted(results: Results, recorded: Recorded) -> Fit:
    """Return the fit of the route that the exchange used. Raises UsageError: the results have none, or several."""
    asked = recorded.library, recorded.channel.transport
    routes = [one for one in results.routes() if (one.library, one.transport) == asked and not one.exchange]
    routes = [one for one in routes if one.channel == recorded.channel] or routes
    fits = [found for route in routes if (found := fit(results, route))]
    if len(fits) == 1:
        return fits[0]
    channel, library = recorded.channel, recorded.library
    what = f"Run {recorded.run_id} used {library} over {channel}, and the results have"
    what += f" {len(fits)} such routes." if fits else f" no such route with latencies of {FEWEST_SIZES} sizes."
    raise UsageError(what, f"dlobd micro latency --channel {channel} --library {library} -o FILE")
