"""Estimates over launches: intervals, comparison of two routes, and the alpha-beta model of a channel. Pure.

A launch gives one value; the samples within it are not independent. Intervals are over launches; a row has their
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlobd.compare.median import Estimate, median
from dlobd.compare.permutation import Samples
from dlobd.compare.verdicts import Compared, compare_family
from dlobd.micro.plan import BENCHMARKS, Point, Route
from dlobd.micro.results import Launch, PointResult, Results

if TYPE_CHECKING:
    import pandas as pd

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
        known = [getattr(one, name) for one in summaries]
        return own.times(1 / round_trips) if None not in known and (own := median(known)) else None

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
        median(figure_of(one) for one in seen),
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


def frame(results: Results) -> pd.DataFrame:
    """Return one row per launch and completed point: its figure in `metric`, and its times in nanoseconds.

    The times are those of calls or batches in order, with the warm-up, which has `warm_up` samples: see
    `DataFrame.explode`. `figure` is missing without times.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            "launch": launch.number,
            "channel": launch.route.channel,
            "library": launch.route.library,
            "exchange": launch.route.exchange,
            "hosts": launch.hosts,
            "benchmark": one.point.benchmark,
            "payload": one.point.payload.name,
            "bytes": one.point.payload.bytes,
            "figure": figure_of(one),
            "metric": BENCHMARKS[one.point.benchmark].metric,
            "bad": one.bad,
            "warm_up": one.summary.warm_up if one.summary else 0,
            "times_ns": one.times_ns,
        }
        for launch in results.launches
        for one in launch.points
    )


def _use(seen: Sequence[PointResult], name: str) -> Ends:
    """Return a part of the resource use per message, of the measuring end and of the other end."""

    def mean(measures: bool) -> float | None:
        used = [end.use for one in seen for end in one.ends if bool(end.times_ns) is measures and end.use]
        known = [getattr(use, name) / use.messages for use in used if use.messages and getattr(use, name) is not None]
        return sum(known) / len(known) if known else None

    return mean(True), mean(False)


# ---- comparison


def compare(results: Results, first: Route, second: Route) -> dict[Point, Compared]:
    """Compare the times of two routes at each common point, as a family. Launches of one round are paired."""
    family = {}
    for point in results.points():
        sides = [
            {(launch.number, launch.hosts): ns for launch, one in results.at(route, point) if (ns := _time_ns(one))}
            for route in (first, second)
        ]
        if both := [key for key in sides[0] if key in sides[1]]:
            baseline, candidate = (tuple(side[key] for key in both) for side in sides)
            family[point] = Samples(baseline, candidate, paired=True)
    return compare_family(family)


def _time_ns(one: PointResult) -> int | None:
    """Return the time of a launch: of a call, or of a batch of messages."""
    figure, found = figure_of(one), one.summary
    if not figure or not found:
        return None
    if one.point.benchmark == "ps":
        return round(1e9 / figure)
    return round(found.median if BENCHMARKS[one.point.benchmark].unit_ns else found.mean)


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
        seen = [one for one in launch.points if one.point.benchmark == name and one.point.is_plain]
        times = {one.point.payload.bytes: one.summary.median / share for one in seen if one.summary}
        if len(times) >= FEWEST_SIZES:
            fitted, error = alpha_beta(list(times), list(times.values()))
            fits.append(fitted)
            errors.append(error)
            sizes |= times.keys()
    if not fits:
        return None
    alpha, beta = (median(column) for column in zip(*fits, strict=True))
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
