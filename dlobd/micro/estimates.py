"""Estimates over launches: intervals, comparison of two routes, and the alpha-beta model of a channel. Pure.

A launch gives one value; the samples within it are not independent. Intervals are over launches; every estimate has
their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlobd.compare.permutation import Samples, holm, test
from dlobd.compare.power import student_quantile
from dlobd.micro.plan import BENCHMARKS, Point, Route
from dlobd.micro.results import Launch, PointResult, Results

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """Geometric mean over launches with its interval; `low` and `high` are None for a single launch."""

    value: float
    low: float | None
    high: float | None
    launches: int

    def times(self, factor: float) -> Estimate:
        """Multiply by a positive factor."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, value=self.value * factor, low=low, high=high)


def over_launches(values: Iterable[float | None], confidence: float = CONFIDENCE) -> Estimate | None:
    """Estimate the mean of one value per launch; None if a launch has no value.

    Times and rates of launches vary by factors, so that the interval is Student's of their logarithms. With a value of
    0, which only a fit gives, it is that of the values.
    """
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    array, count = np.asarray(known, float), len(known)
    positive = bool((array > 0).all())
    scaled = np.log(array) if positive else array
    mean = float(scaled.mean())
    half = 0.0
    if count > 1:
        half = student_quantile((1 + confidence) / 2, count - 1) * float(scaled.std(ddof=1)) / count**0.5
    value, low, high = (float(np.exp(end)) if positive else end for end in (mean, mean - half, mean + half))
    return Estimate(value, low, high, count) if count > 1 else Estimate(value, None, None, 1)


Ends = tuple[float | None, float | None]
"""Values of the measuring end, such as a worker, and of the other end, such as a server; None is unknown."""


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of a route at a point, over its successful launches.

    Times are per call, one way for a latency, in nanoseconds. `figure` has the benchmark's metric: microseconds,
    milliseconds, MB/s (10^6 bytes) or calls per second.

    processes: number of processes, such as ranks; `oversubscribed`: True if a host has less cores.
    link_bytes_per_s: rate of the slowest link; None if it is unknown.
    cpu_ns, switches, syscalls: CPU time, context switches and system calls per message, or per call.
    """

    route: Route
    point: Point
    launches: int
    samples: int
    warm_up: int
    steady: bool
    bad: int
    processes: int
    oversubscribed: bool
    link_bytes_per_s: float | None
    figure: Estimate | None
    mean: Estimate | None
    p50: Estimate | None
    p90: Estimate | None
    p99: Estimate | None
    cpu_ns: Ends
    switches: Ends
    syscalls: Ends

    @property
    def metric(self) -> str:
        return BENCHMARKS[self.point.benchmark].metric

    @property
    def algbw(self) -> float | None:
        """Bytes of the array, or of all gradients, by the time of an exchange: nccl-tests' algbw, in MB/s."""
        if self.point.benchmark != "exchange" or not self.figure:
            return None
        return self.point.payload.bytes / (1e3 * self.figure.value)

    @property
    def busbw(self) -> float | None:
        """nccl-tests' busbw of an all-reduce in MB/s: with n ranks, algbw * 2 (n - 1) / n.

        It is what each rank sends and receives in a ring. Parameter servers have other transfers: a rank sends and
        receives all bytes, and a server those of all ranks. Their busbw compares times, and is no load of a link.
        """
        return self.algbw and self.algbw * 2 * (self.processes - 1) / self.processes


def rows(results: Results) -> list[Row]:
    """Return one row per route and point."""
    every = [(route, point, results.at(route, point)) for point in results.points() for route in results.routes()]
    return [_row(results, route, point, seen) for route, point, seen in every if seen]


def values(results: Results, route: Route, point: Point) -> list[float]:
    """Return the figure of each launch, in the benchmark's metric."""
    return [figure for _, one in results.at(route, point) if (figure := figure_of(one)) is not None]


def _row(results: Results, route: Route, point: Point, found: Sequence[tuple[Launch, PointResult]]) -> Row:
    seen, links = [one for _, one in found], [launch.link_bytes_per_s for launch, _ in found]
    summaries = [one.summary for one in seen if one.summary]
    round_trips = 2 if point.benchmark == "latency" else 1

    def estimate(name: str) -> Estimate | None:
        own = over_launches(getattr(one, name) for one in summaries)
        return own and own.times(1 / round_trips)

    return Row(
        route,
        point,
        len(seen),
        sum(one.count for one in summaries),
        max((one.warm_up for one in summaries), default=0),
        all(one.steady for one in summaries),
        sum(one.bad for one in seen),
        max(len(one.ends) for one in seen),
        any(results.oversubscribed(launch) for launch, _ in found),
        min((rate for rate in links if rate), default=None) if None not in links else None,
        over_launches(figure_of(one) for one in seen),
        estimate("mean"),
        estimate("p50"),
        estimate("p90"),
        estimate("p99"),
        *(_use(seen, name) for name in ("cpu_ns", "switches", "syscalls")),
    )


def figure_of(one: PointResult) -> float | None:
    """Return the figure of a launch: the median for times of calls, otherwise bytes or calls by time."""
    point, found = one.point, one.summary
    if found is None:
        return None
    if point.benchmark == "ps":
        # each worker's own rate: their clocks may differ
        workers = [end for end in one.ends if end.batches_ns]
        return sum(1e9 * len(end.times_ns) / sum(end.batches_ns) for end in workers)
    benchmark = BENCHMARKS[point.benchmark]
    if benchmark.unit_ns:
        return found.median / benchmark.unit_ns
    if benchmark.metric == "1/s":
        return 1e9 * point.messages / found.mean
    directions = 2 if point.benchmark == "bidirectional" else 1
    return 1e3 * directions * point.messages * point.payload.bytes / found.mean


def _use(seen: Sequence[PointResult], name: str) -> Ends:
    """Return a part of the resource use per message, of the measuring end and of the other end."""

    def mean(measures: bool) -> float | None:
        used = [end.use for one in seen for end in one.ends if bool(end.times_ns) is measures and end.use]
        known = [getattr(use, name) / use.messages for use in used if use.messages and getattr(use, name) is not None]
        return sum(known) / len(known) if known else None

    return mean(True), mean(False)


# ---- comparison


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two routes at one point: ratio of the second figure to the first, with the p-value of the permutation test over
    launches and Holm's correction over all points."""

    point: Point
    ratio: float
    p: float
    different: bool
    launches: int


def compare(results: Results, first: Route, second: Route, alpha: float = 0.05) -> list[Comparison]:
    """Compare two routes at each common point. Launches with equal numbers are paired, because they ran in one
    round."""
    found = []
    for point in results.points():
        pairs = _pairs(results, first, second, point)
        if not pairs:
            continue
        scaled = [tuple(round(1e6 * value) for value in side) for side in zip(*pairs, strict=True)]
        tested = test(Samples(scaled[0], scaled[1], paired=True))
        found.append((point, float(np.mean([b / a for a, b in pairs])), tested.p, len(pairs)))
    corrected = holm([p for _, _, p, _ in found])
    return [
        Comparison(point, ratio, p, p <= alpha, count)
        for (point, ratio, _, count), p in zip(found, corrected, strict=True)
    ]


def _pairs(results: Results, first: Route, second: Route, point: Point) -> list[tuple[float, float]]:
    sides = [
        {
            (launch.number, launch.hosts): figure
            for launch, one in results.at(route, point)
            if (figure := figure_of(one))
        }
        for route in (first, second)
    ]
    return [(sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]


# ---- alpha-beta model


@dataclass(frozen=True, slots=True)
class Fit:
    """Time of a message, or of an exchange, of n bytes = alpha + n * beta (Hockney 1994), with intervals over launches.

    alpha: nanoseconds; beta: nanoseconds per byte.
    error: median relative difference of the measured times.
    launches: alpha and beta of each launch.
    """

    alpha: Estimate
    beta: Estimate
    error: float
    points: int
    launches: tuple[tuple[float, float], ...]


FEWEST_SIZES = 3


def fit(results: Results, route: Route) -> Fit | None:
    """Fit the one-way latencies, or the exchanges, of a route in each launch; None with fewer than FEWEST_SIZES sizes.

    Launches with more processes than cores are left out: their times include waits for a core.
    """
    name, share = ("exchange", 1) if route.exchange else ("latency", 2)
    fits, errors = [], []
    sizes: set[int] = set()
    for launch in results.of(route):
        if results.oversubscribed(launch):
            continue
        seen = [one for one in launch.points if one.point.benchmark == name and not one.point.rate]
        times = {one.point.payload.bytes: one.summary.median / share for one in seen if one.summary}
        if len(times) >= FEWEST_SIZES:
            fitted, error = alpha_beta(list(times), list(times.values()))
            fits.append(fitted)
            errors.append(error)
            sizes |= times.keys()
    if not fits:
        return None
    alpha, beta = (over_launches(column) for column in zip(*fits, strict=True))
    assert alpha is not None
    assert beta is not None
    return Fit(alpha, beta, float(np.median(errors)), len(sizes), tuple(fits))


def alpha_beta(sizes: Sequence[int], times_ns: Sequence[float]) -> tuple[tuple[float, float], float]:
    """Fit alpha and beta, both at least 0, with least relative squares; return them and the median relative error."""
    time_ns = np.asarray(times_ns, float)
    design = np.column_stack([np.ones(len(sizes)), np.asarray(sizes, float)]) / time_ns[:, None]
    # the least squares with both coefficients, or with one of them if the other would be negative
    solutions = []
    for columns in ([0, 1], [0], [1]):
        found = np.zeros(2)
        found[columns] = np.linalg.lstsq(design[:, columns], np.ones(len(sizes)), rcond=None)[0]
        if (found >= 0).all():
            solutions.append((float(((design @ found - 1) ** 2).sum()), tuple(found.tolist())))
    alpha, beta = min(solutions)[1]
    return (alpha, beta), float(np.median(np.abs(design @ [alpha, beta] - 1)))
