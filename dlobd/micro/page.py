"""Page of results: pictures and tables as one HTML file that needs no network."""

from collections.abc import Iterable, Sequence

import numpy as np

from dlobd import __version__
from dlobd.compare.median import Estimate
from dlobd.micro.estimates import Fit, Row, fit, rows
from dlobd.micro.plan import BENCHMARKS, Point, Route
from dlobd.micro.results import Results
from dlobd.micro.table import described, marked, notes, tables, unit
from dlobd.report.page import render

MOST_SAMPLES = 200
"""Maximum points of a distribution."""

PERCENTILES = ("p50", "p90", "p99")


def page(results: Results) -> str:
    """Return the page of results as HTML."""
    names = dict.fromkeys(point.benchmark for point in results.points())
    view = {
        "title": f"{', '.join(names) or 'no completed point'} - dlobd micro",
        "names": list(names),
        "results": results,
        "notes": list(notes(results)),
        "tables": tables(results),
        "version": __version__,
    }
    return render.page("micro.html", view, render.MICRO_SCRIPTS, charts(results))


def charts(results: Results) -> dict[str, object]:
    """Return the data of the pictures. Series are numbered in the order of `series`."""
    found, routes = rows(results), results.routes()
    return {
        "layers": (),  # theme.js reads the layers of runs
        "dark": (),
        "series": [_series(route, routes, fit(results, route)) for route in routes],
        "panels": [
            _panel(name, [row for row in found if row.point.benchmark == name], routes)
            for name in BENCHMARKS
            if any(row.point.benchmark == name for row in found)
        ],
        "distributions": [_distribution(point, results) for point in results.points()],
    }


def _series(route: Route, routes: Sequence[Route], fitted: Fit | None) -> dict[str, object]:
    """Return the name of a route, its place for colours, which differ within a picture, and alpha and beta in the unit
    of its panel."""
    kind = [one for one in routes if bool(one.exchange) == bool(route.exchange)]
    unit_ns = 1e6 if route.exchange else 1e3
    model = fitted and (fitted.alpha.value / unit_ns, fitted.beta.value / unit_ns)
    return {"name": route.label, "place": kind.index(route), "fit": model}


def _time(point: Point) -> tuple[float, str]:
    """Return the nanoseconds of a unit of time, and the name of the unit, for the times of a point."""
    benchmark = BENCHMARKS[point.benchmark]
    if benchmark.unit_ns:
        return benchmark.unit_ns, unit(benchmark)
    return 1e3, "us per call" if point.benchmark == "ps" else f"us per batch of {point.messages:,} messages"


def _panel(name: str, found: Sequence[Row], routes: Sequence[Route]) -> dict[str, object]:
    """Return the figures of a benchmark over the bytes of a message."""
    benchmark = BENCHMARKS[name]

    def cells(estimates: Iterable[tuple[Row, Estimate | None]]) -> list[tuple[object, ...]]:
        return [
            (routes.index(row.route), row.point.payload.bytes, marked(row), one.value, one.low, one.high)
            for row, one in estimates
            if one
        ]

    quantiles = {
        label: cells((row, (one := getattr(row, label)) and one.times(1e-3)) for row in found)
        for label in PERCENTILES
        if benchmark.metric == "us"
    }
    return {
        "name": name,
        "title": f"{name.capitalize()}: {benchmark.title}",
        "unit": unit(benchmark),
        "rows": cells((row, row.figure) for row in found),
        "quantiles": {label: some for label, some in quantiles.items() if some},
    }


def _distribution(point: Point, results: Results) -> dict[str, object]:
    """Return equally spaced quantiles of the times of all launches by series, at most MOST_SAMPLES, without warm-up."""
    scale, name = _time(point)
    times = []
    for number, route in enumerate(results.routes()):
        steady = [one.times_ns[one.summary.warm_up :] for _, one in results.at(route, point) if one.summary]
        if pooled := [time_ns / scale for each in steady for time_ns in each]:
            drawn = np.quantile(pooled, np.linspace(0, 1, min(len(pooled), MOST_SAMPLES)))
            times.append((number, [float(f"{value:.4g}") for value in drawn]))
    return {"name": f"{point.benchmark}, {described(point)}", "unit": name, "times": times}
