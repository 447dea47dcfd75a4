"""The page of micro-benchmarks: it has the figures of the tables, one series per route, and no foreign markup."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dlobd.micro import estimates, samples
from dlobd.micro import results as micro_results
from dlobd.micro.page import MOST_SAMPLES, page
from dlobd.micro.payload import payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.results import Figures, Launch, PointResult, Results
from dlobd.micro.samples import Summary
from dlobd.micro.table import tables

HOSTILE = "</script><b>"
ROUTES = (Route("tcp", "sockets"), Route(f"tcp@{HOSTILE}", "ucx"), Route("shm", "ucx"))
SIZES = {"latency": ("8", "64K", "1M"), "bandwidth": ("64K", "1M"), "ps": ("10,1M",)}
POINTS = tuple(Point(name, payload(size)) for name, sizes in SIZES.items() for size in sizes)

pytestmark = pytest.mark.slow


def _measured(point: Point, slower: int, samples: int) -> PointResult:
    mean_ns = 10_000 * slower + point.payload.bytes
    times_ns = tuple(mean_ns + 7 * (number % 11) for number in range(samples))
    batches_ns = (sum(times_ns),) if point.benchmark == "ps" else ()
    return PointResult(point, (Figures(0, ()), Figures(1, times_ns, batches_ns)))


def _results(samples: int = 1000) -> Results:
    launches = [
        Launch(
            number, route, ("here", "here"), tuple(_measured(point, place + number + 1, samples) for point in POINTS)
        )
        for number in range(6)
        for place, route in enumerate(ROUTES)
    ]
    failed = Launch(2, ROUTES[1], ("here", "here"), launches[0].points[:1], failed=f"it ended: {HOSTILE}")
    return replace(micro_results.empty(f"CPU {HOSTILE}", "here", 4), launches=(*launches, failed))


def _data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def _markup(text: str) -> str:
    return re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)


def test_the_page_has_all_figures_of_the_tables_without_scripts() -> None:
    made = _results()
    words = html.unescape(re.sub("<[^>]*>", "", _markup(page(made))))
    found = tables(made)
    assert [one.title.partition(":")[0] for one in found] == ["Latency", "Bandwidth", "Ps", "Fit"]
    for one in found:
        assert one.title in words
        assert all(value in words for row in one.rows for value in row if isinstance(value, str))
    assert "FAILED: launch 3" in words
    assert f"CPU {HOSTILE}" in words


def test_each_launch_is_summarised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    summary = samples.summary

    def counting(times_ns: Sequence[int], open_loop: bool = False) -> Summary | None:
        counted.append(len(times_ns))
        return summary(times_ns, open_loop)

    monkeypatch.setattr(samples, "summary", counting)
    made = _results()
    page(made)
    tables(made)
    estimates.compare(made, *ROUTES[:2])
    assert len(counted) == len({id(one) for launch in made.launches for one in launch.points})


def test_hostile_names_are_escaped() -> None:
    text = page(_results())
    assert HOSTILE not in text
    assert html.escape(HOSTILE) in text
    assert _data(text)["series"][1]["name"] == ROUTES[1].label


def test_each_route_is_one_series() -> None:
    made = _results()
    data = _data(page(made))
    assert [one["name"] for one in data["series"]] == [route.label for route in made.routes()]
    assert all(one["fit"][1] == pytest.approx(0.0005, rel=0.05) for one in data["series"])  # half of 1 ns per byte
    panels = {one["name"]: one for one in data["panels"]}
    assert list(panels) == ["latency", "bandwidth", "ps"]
    for name, sizes in SIZES.items():
        assert sorted(row[0] for row in panels[name]["rows"]) == sorted([*range(len(ROUTES))] * len(sizes))
        assert all(low <= value <= high for _, _, _, value, low, high in panels[name]["rows"])


@pytest.mark.parametrize(("samples", "known"), [(1100, ["p50", "p90", "p99"]), (999, ["p50", "p90"]), (19, [])])
def test_percentiles_need_enough_samples(samples: int, known: list[str]) -> None:
    (latency, *others) = _data(page(_results(samples)))["panels"]
    assert list(latency["quantiles"]) == known
    assert not any(one["quantiles"] for one in others)


def test_distributions_are_sorted_and_thinned() -> None:
    found = _data(page(_results()))["distributions"]
    assert [one["name"] for one in found][:4] == [
        "latency, 8 B",
        "latency, 64 KiB",
        "latency, 1 MiB",
        "bandwidth, 64 KiB",
    ]
    assert found[3]["unit"] == "us per batch of 256 messages"
    for one in found:
        assert [series for series, _ in one["times"]] == [0, 1, 2]
        assert all(times == sorted(times) and len(times) == MOST_SAMPLES for _, times in one["times"])
    (first, *_) = found[0]["times"]
    assert first == [0, pytest.approx([*first[1]])]
    assert first[1][0] == pytest.approx(5.004)  # half of 10 us and 8 ns


def test_results_without_launches_make_a_page() -> None:
    text = page(micro_results.empty("CPU", "here", 4))
    assert "There are no figures." in text
    assert _data(text) == {"layers": [], "dark": [], "series": [], "panels": [], "distributions": []}


def test_the_page_loads_nothing() -> None:
    text = page(_results())
    assert "default-src 'none'" in html.unescape(text)
    assert set(re.findall(r'(?:src|href)="([^"]*)"', _markup(text))) == {"data:,", "#main"}
    assert len(text.encode()) <= 2_000_000
