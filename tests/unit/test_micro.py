"""Micro-benchmarks without processes: payloads, samples, estimates, tables."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd import cli
from dlobd.errors import BundleError, UsageError
from dlobd.micro import estimates, places, results, samples, table
from dlobd.micro.messages import Content, Message, serialized_bytes
from dlobd.micro.payload import KIB, MIB, Payload, name_of, payload, size_bytes
from dlobd.micro.plan import Point, Route
from dlobd.micro.request import DEFAULT, Request
from dlobd.micro.results import Figures, Launch, PointResult, Results

SOCKETS, BARE = Route("tcp", "sockets"), Route("tcp", "bare")


def counts(made: Payload) -> tuple[int, int, int]:
    """Return the numbers of large, medium and small buffers."""
    return tuple(made.sizes.count(size) for size in (MIB, 10 * KIB, 10))  # type: ignore[return-value]


def test_schemes_have_the_published_payloads() -> None:
    """Uniform 4/3/3 and skew 6/3/1, as the paper's figures 8 and 10 imply."""
    assert counts(payload("uniform")) == (4, 3, 3)
    assert counts(payload("skew")) == (6, 3, 1)
    assert counts(payload("skew", prefer="small")) == (1, 3, 6)
    assert counts(payload("skew", prefer="medium")) == (3, 6, 1)
    assert counts(payload("uniform", 4, ["small"])) == (0, 0, 4)
    assert payload("random", seed=1) == payload("random", seed=1)
    assert payload("random", 200, seed=1) != payload("random", 200, seed=2)
    assert min(counts(payload("random", 300))) > 60
    assert payload("10,4KiB,1M").sizes == (10, 4 * KIB, MIB)
    assert payload("64K").name == "64 KiB"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0",), "no size"),
        (("-4",), "no size"),
        (("12x",), "no size"),
        (("uniform", 0), "0 buffers"),
        (("uniform", -1), "-1 buffers"),
        (("uniform", 2000), "2000 buffers"),
        (("uniform", 10, ["tiny"]), "Unknown size class 'tiny'"),
        (("random", 10, ["small"]), "at least two"),
        (("skew", 10, ["small", "medium"], "large"), "not among"),
    ],
)
def test_impossible_payloads_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        payload(*arguments)  # type: ignore[arg-type]


def test_sizes_are_parsed_and_named() -> None:
    for text, size in (("8", 8), ("8B", 8), ("64K", 65536), ("64KiB", 65536), ("2M", 2 * MIB), ("1G", 1 << 30)):
        assert size_bytes(text) == size
        assert size_bytes(name_of(size).replace(" ", "")) == size


@pytest.mark.parametrize("serialized", [False, True])
@pytest.mark.parametrize("sizes", [(1,), (8,), (3, 5, 4000), (100_000,)])
def test_each_wrong_byte_is_found(sizes: tuple[int, ...], serialized: bool) -> None:
    chosen = Payload("", sizes, serialized)
    content, message = Content(chosen), Message(chosen)

    class Decoded:
        @property
        def buffers(self) -> list[bytes]:
            return [part.tobytes() for part in message.parts]

    def wrong(number: int, *changed: int) -> bool:
        message.decoded = Decoded()
        content.write(message, 7)
        for place in changed:
            message.memory[place] ^= 1
        return content.wrong(message, number)

    assert not wrong(7)
    assert wrong(6)
    for place in {0, sum(sizes) // 2, sum(sizes) - 1}:
        assert wrong(7, place)
    assert content.wrong(message, 7)  # it was cleared
    assert serialized_bytes(chosen) >= chosen.bytes


# ---- samples


def test_a_percentile_needs_samples() -> None:
    assert samples.fewest(0.99) == 1000
    found = samples.summary(list(range(1, 1000)))
    assert found
    assert found.p99 is None
    assert found.p50 == 500
    found = samples.summary([5] * 1000)
    assert found
    assert found.p99 == 5
    assert samples.summary([]) is None


def test_a_warm_up_is_found_and_noise_is_none() -> None:
    drawn = random.Random(3)
    steady = [round(drawn.gauss(1000, 50)) for _ in range(1000)]
    slow = [round(3000 * 0.98**k) + one for k, one in enumerate(steady[:150])]
    skipped, is_steady = samples.warm_up(slow + steady)
    assert is_steady
    assert 60 <= skipped <= 260
    assert samples.warm_up(steady)[0] <= 100
    rising = [1000 + 5 * k for k in range(1000)]
    assert samples.warm_up(rising)[1] is False
    outlier = [*steady[:900], 10**7, *steady[900:]]
    assert samples.warm_up(outlier)[0] <= 100


def test_an_open_loop_keeps_a_stall_at_its_start() -> None:
    times = [10**6] * 100 + [1000] * 900
    open_loop, closed = samples.summary(times, open_loop=True), samples.summary(times)
    assert open_loop
    assert closed
    assert open_loop.warm_up == 0
    assert open_loop.p99 == 10**6
    assert closed.warm_up == 100


# ---- estimates


def launch(number: int, route: Route, points: dict[Point, list[int]], **more: object) -> Launch:
    ends = {point: (Figures(0, ()), Figures(1, tuple(times))) for point, times in points.items()}
    return Launch(number, route, ("a", "b"), tuple(PointResult(p, e) for p, e in ends.items()), **more)  # type: ignore[arg-type]


def found_in(*launches: Launch) -> Results:
    return replace(results.empty("machine", "here", 2), launches=launches)


def point(size: int, benchmark: str = "latency") -> Point:
    return Point(benchmark, payload(str(size)))


def test_figures_have_the_benchmarks_units() -> None:
    times = {point(8): [2000] * 10, point(MIB, "bandwidth"): [16 * MIB] * 10, point(8, "rate"): [10**6] * 10}
    rows = estimates.rows(found_in(launch(0, SOCKETS, times), launch(1, SOCKETS, times)))
    assert [row.metric for row in rows] == ["us", "MB/s", "1/s"]
    figures = [row.figure.value for row in rows if row.figure]
    assert figures == pytest.approx([1.0, 1000.0, 1024 * 1000])
    assert [row.launches for row in rows] == [2, 2, 2]
    both = estimates.rows(found_in(launch(0, SOCKETS, {point(MIB, "bidirectional"): [16 * MIB] * 10})))[0]
    assert both.figure
    assert both.figure.value == pytest.approx(2000)
    assert both.figure.low is None


def test_the_warm_up_of_all_workers_is_at_the_beginning() -> None:
    """A slow worker is no warm-up."""
    ends = (Figures(0, ()), *(Figures(rank, (ns,) * 500, (10**9,)) for rank, ns in ((1, 9000), (2, 5000), (3, 5000))))
    one = PointResult(Point("ps", payload("uniform")), ends)
    assert one.times_ns[:6] == [9000, 5000, 5000] * 2
    assert one.summary
    assert (one.summary.warm_up, one.summary.count) == (0, 1500)


def test_wrong_messages_of_all_servers_add_up() -> None:
    ends = (Figures(0, (), bad=2), Figures(1, (), bad=3), Figures(2, (5,), bad=4), Figures(3, (5,), bad=1))
    assert PointResult(Point("ps", payload("uniform")), ends).bad == 5
    ranks = (Figures(0, (5,), bad=1), Figures(1, (5,), bad=2))
    assert PointResult(point(8, "exchange"), ranks).bad == 2


def test_serialized_messages_are_not_fitted() -> None:
    plain = {point(size): [2000 + size] * 10 for size in (8, 1000, 4000)}
    other = {replace(point(1000), payload=payload("1000", serialized=True)): [10**6] * 10}
    pair = [estimates.fit(found_in(launch(0, SOCKETS, times)), SOCKETS) for times in (plain, plain | other)]
    assert pair[0] == pair[1]


def test_a_comparison_says_how_many_launches_a_difference_needs() -> None:
    def compared(launches: int) -> str:
        fast, slow = ({point(size): [ns] * 10 for size in (8, 16)} for ns in (1000, 10_000))
        every = [launch(k, route, times) for k in range(launches) for route, times in ((SOCKETS, fast), (BARE, slow))]
        found = estimates.compare(found_in(*every), SOCKETS, BARE)
        verdicts = {one.verdict for one in found.values()}
        return f"{verdicts} {table.comparison(found, SOCKETS, BARE).note}"

    assert "'inconclusive'" in compared(6)
    assert "With 2 points, a difference needs 7 launches: --launches 7." in compared(6)
    assert "'slower'" in compared(7)
    assert "needs" not in compared(7)


def test_pairs_of_hosts_do_not_hide_other_benchmarks() -> None:
    pairs = [replace(launch(0, SOCKETS, {point(8): [2000] * 10}), hosts=hosts) for hosts in (("a", "b"), ("b", "a"))]
    ranks = launch(0, Route("tcp", "sockets", "ring"), {point(8, "exchange"): [2000] * 10})
    titles = [one.title for one in table.tables(found_in(*pairs, ranks))]
    assert len(titles) == 2
    assert "by pair of hosts" in titles[0]
    assert titles[1].startswith("Exchange")


def test_a_data_frame_has_each_launch_and_its_times() -> None:
    times = {point(8): [2000] * 10, point(8, "rate"): [10**6] * 3}
    table = estimates.frame(found_in(launch(0, SOCKETS, times), launch(1, SOCKETS, {point(8): []})))
    assert table.launch.tolist() == [0, 0, 1]
    assert table.figure.fillna(-1).tolist() == pytest.approx([1.0, 1024 * 1000, -1])
    assert table.explode("times_ns").times_ns.dropna().tolist() == [2000] * 10 + [10**6] * 3
    assert table.library.unique().tolist() == ["sockets"]


def test_workers_of_parameter_servers_add_up() -> None:
    ends = (Figures(0, ()), *(Figures(rank, (5,) * 100, (10**9,)) for rank in (1, 2)))
    one = Launch(0, SOCKETS, ("a",) * 3, (PointResult(Point("ps", payload("uniform")), ends),))
    (row,) = estimates.rows(found_in(one))
    assert row.figure
    assert row.figure.value == pytest.approx(200)


def test_a_call_of_ranks_takes_as_long_as_the_slowest() -> None:
    ends = (Figures(0, (1000, 9000)), Figures(1, (4000, 2000)))
    assert PointResult(Point("exchange", payload("4")), ends).times_ns == [4000, 9000]


def test_equal_routes_are_rarely_reported_as_different() -> None:
    drawn = np.random.default_rng(7)

    def noisy(number: int, route: Route, shift: float = 1.0) -> Launch:
        centre = shift * 1000 * drawn.lognormal(0, 0.1)
        return launch(number, route, {point(8): [round(one) for one in drawn.normal(centre, 20, 50)]})

    def different(shift: float) -> bool:
        pairs = [one for k in range(8) for one in (noisy(k, SOCKETS), noisy(k, BARE, shift))]
        (found,) = estimates.compare(found_in(*pairs), SOCKETS, BARE).values()
        assert found.runs == (8, 8)
        return found.verdict in ("faster", "slower")

    assert sum(different(1.0) for _ in range(200)) <= 17
    assert sum(different(1.5) for _ in range(20)) >= 19


def test_the_fit_finds_alpha_and_beta() -> None:
    sizes = [8, 1 << 10, 1 << 16, MIB, 4 * MIB]

    def one(number: int, scale: float) -> Launch:
        return launch(number, SOCKETS, {point(size): [round(2 * scale * (5000 + size / 2))] * 20 for size in sizes})

    found = estimates.fit(found_in(*(one(k, scale) for k, scale in enumerate((0.98, 1.0, 1.02)))), SOCKETS)
    assert found
    assert found.alpha.value == pytest.approx(5000, rel=0.02)
    assert found.beta.value == pytest.approx(0.5, rel=0.02)
    assert found.error < 0.01
    assert (found.points, len(found.launches)) == (5, 3)
    assert estimates.alpha_beta([1, 10, 100], [10.0, 10.0, 10.0])[0] == pytest.approx((10, 0), abs=1e-6)
    few = launch(0, SOCKETS, {point(8): [100] * 20, point(16): [100] * 20})
    assert estimates.fit(found_in(few), SOCKETS) is None


def exchanged(number: int, ranks: int, sizes: Sequence[int], exchange: str = "ring") -> Launch:
    """Return a launch of ranks, with calls of 1 ms and 10 ns per byte."""
    points = tuple(
        PointResult(point(size, "exchange"), tuple(Figures(rank, (10**6 + 10 * size,) * 10) for rank in range(ranks)))
        for size in sizes
    )
    return Launch(number, Route("tcp", "sockets", exchange), tuple(map(str, range(ranks))), points)


def test_an_exchange_has_the_bandwidths_of_nccl_tests() -> None:
    """PERFORMANCE.md of nccl-tests: algbw = size / time, and busbw = algbw * 2 (n - 1) / n."""
    found = replace(found_in(exchanged(0, 4, [10**6])), cores=4)
    (row,) = estimates.rows(found)
    assert row.algbw == pytest.approx(10**6 / 0.011 / 1e6)
    assert row.busbw == pytest.approx(1.5 * 10**6 / 0.011 / 1e6)
    (shown,) = table.tables(found)
    cells = dict(zip((column.name for column in shown.columns), shown.rows[0], strict=True))
    assert (cells["ms"], cells["algbw, MB/s"], cells["busbw, MB/s"]) == ("11", "90.91", "136.4")
    assert "busbw of parameter servers" not in " ".join(table.notes(found))
    assert "busbw of parameter servers" in " ".join(table.notes(found_in(exchanged(0, 2, [8], "ps"))))
    (latency,) = estimates.rows(found_in(launch(0, SOCKETS, {point(8): [1000]})))
    assert (latency.algbw, latency.busbw) == (None, None)


def test_oversubscribed_rows_are_marked_and_not_fitted() -> None:
    sizes = (8, MIB, 4 * MIB)
    both = found_in(exchanged(0, 2, sizes), exchanged(0, 3, sizes, "halving-doubling"))
    exchanges, fits = table.tables(both)
    marks = {row[1]: row[0] for row in exchanges.rows if str(row[0]).startswith("8 B")}
    assert marks == {"ring (sockets) tcp": "8 B", "halving-doubling (sockets) tcp": "8 B, oversubscribed"}
    ((label, alpha, *_, count),) = fits.rows
    assert (label, alpha, count) == ("ring (sockets) tcp", "1000", 3)
    assert "a host has more processes than cores" in " ".join(table.notes(both))
    assert not both.oversubscribed(replace(both.launches[1], cores=64)), "the cores of its own host count"
    on_hosts = replace(both, place="a:1,b:1")
    assert not on_hosts.oversubscribed(both.launches[1]), "each rank has a host"
    assert on_hosts.oversubscribed(replace(both.launches[1], hosts=("a",) * 3))


def test_the_median_of_a_launch_is_the_figure_not_its_mean() -> None:
    times = [1000] * 99 + [10**6]
    assert estimates.values(found_in(launch(0, SOCKETS, {point(8): times})), SOCKETS, point(8)) == [0.5]
    assert statistics.fmean(times) > 10_000


# ---- results and tables


def test_results_are_read_as_written(tmp_path: Path) -> None:
    found = found_in(launch(0, SOCKETS, {point(8): [1, 2, 3]}), launch(1, SOCKETS, {}, failed="process 1 is gone"))
    path = tmp_path / "results.json"
    path.write_text(found.text())
    assert results.read(path) == found
    for text, message in (
        ("{", "no results"),
        ("[]", "no results"),
        ("{}", "no results"),
        (found.text().replace('"schema": 1', '"schema": 9'), "its format is 9"),
        (found.text().replace('"machine"', '"machin"'), "no results"),
    ):
        path.write_text(text)
        with pytest.raises(BundleError, match=message):
            results.read(path)
    with pytest.raises(BundleError, match="cannot be read"):
        results.read(tmp_path / "none.json")


def test_tables_compare_with_the_bare_socket_and_name_failures() -> None:
    found = found_in(
        launch(0, SOCKETS, {point(8): [4000] * 10}),
        launch(0, BARE, {point(8): [2000] * 10}),
        launch(1, SOCKETS, {}, failed="process 1 on a is gone: killed", retransmitted_bytes=500),
    )
    (latency,) = table.tables(found)
    assert [row[5] for row in latency.rows] == ["50 %", "bare"]
    assert latency.rows[0][3] == "- (n=1)"
    first, *rest = table.notes(found)
    assert first == "FAILED: launch 2 of sockets tcp: process 1 on a is gone: killed (0 points kept)."
    assert any("500 bytes" in note for note in rest)
    assert any("p99 needs 1,000 samples" in note for note in rest)


def test_bandwidths_are_shares_of_the_link() -> None:
    """16 MiB in 16.8 ms are 1,000 MB/s."""
    points = {point(MIB, name): [16 * MIB] * 10 for name in ("bandwidth", "bidirectional")}
    rate = places.bytes_per_s("10gbit") or 0

    def shares(*links: float | None) -> list[object]:
        found = found_in(*(launch(k, SOCKETS, points, link_bytes_per_s=link) for k, link in enumerate(links)))
        assert results.parsed(found.text()) == found
        every = [
            dict(zip((column.name for column in one.columns), one.rows[0], strict=True)) for one in table.tables(found)
        ]
        return [cells["of link"] for cells in every]

    assert shares(rate, 2 * rate) == ["80 %", "80 %"], "of the slower link, in each direction"
    assert shares(rate, None) == [None, None]
    (latency,) = table.tables(found_in(launch(0, SOCKETS, {point(8): [1000]}, link_bytes_per_s=rate)))
    assert "of link" not in [column.name for column in latency.columns]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("1gbit", 125e6),
        ("100Mbit", 12.5e6),
        ("8000", 1000.0),
        ("2.5kbps", 2500.0),
        ("1mibit", 131072.0),
        ("fast", None),
        ("10%", None),
    ],
)
def test_rates_of_links_are_those_of_tc(rate: str, expected: float | None) -> None:
    assert places.bytes_per_s(rate) == expected


# ---- requests


def test_a_request_has_a_plan_per_route() -> None:
    plans, left_out = Request(quick=True, libraries=("sockets", "bare")).plans(["tcp"])
    assert [plan.route for plan in plans] == [SOCKETS, BARE]
    assert [one.benchmark for one in plans[0].points] == ["latency"] * 3 + ["bandwidth", "rate"]
    assert left_out == []
    plans, left_out = Request(quick=True).plans(["tcp"])
    assert left_out[0].startswith("Without ucx over tcp: UCX finds no route over loopback")
    (plan,) = Request(("ps",), scheme="skew", libraries=("sockets",)).plans(["tcp"])[0]
    assert (plan.servers, plan.points[0].payload.bytes) == (2, payload("skew").bytes)
    exchanges, _ = Request(("exchange",), sizes="deepbench").plans(["tcp"])
    assert [plan.route.exchange for plan in exchanges] == ["MPI_Allreduce", "ring", "halving-doubling", "ps"]
    assert len(exchanges[0].points) == 7
    four, _ = Request(("exchange",), sizes="deepbench", ranks=4).plans(["tcp"])
    assert len(four[0].points) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"benchmarks": ("speed",)}, "Unknown benchmark 'speed'"),
        ({"channels": ("wifi",)}, "Unknown channel 'wifi'"),
        ({"channels": ("tcp@",)}, "no device after"),
        ({"libraries": ("zeromq",)}, "Unknown library 'zeromq'"),
        ({"exchanges": ("rings",)}, "Unknown exchange 'rings'"),
    ],
)
def test_an_impossible_request_is_refused(arguments: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Request(**arguments)  # type: ignore[arg-type]


def test_a_library_that_does_not_carry_the_channel_is_refused() -> None:
    with pytest.raises(UsageError, match="grpc cannot be measured over shm"):
        Request(channels=("shm",), libraries=("grpc",)).plans([])
    (plan,), left_out = Request(("rate",), libraries=("sockets",)).plans(["tcp", "shm"])
    assert (plan.route.channel, len(left_out)) == ("tcp", 1)
    with pytest.raises(UsageError, match="Nothing can be measured"):
        Request(("put",), libraries=("sockets",)).plans(["tcp"])


def test_a_job_on_yarn_gets_the_words_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def measured(request: Request, words: Sequence[str], *_: object) -> Results:
        given.extend([request, list(words)])
        return results.empty("", "yarn", 2)

    monkeypatch.setattr(places, "measure_on_yarn", measured)
    words = [
        "latency",
        "ps",
        "--channel",
        "tcp@eth0",
        "--channel",
        "shm",
        "--serialized",
        "--time",
        "0.25",
        "--seed",
        "0",
    ]
    assert cli.main(["micro", *words, "--on", "yarn", "--json"]) == 0
    request, passed = given
    assert passed == words
    assert (request.channels, request.seconds, request.serialized) == (["tcp@eth0", "shm"], 0.25, True)
    assert cli.main(["micro", "--on", "yarn", "--warm-up", "0"]) == 0
    assert (given[2].benchmarks, given[2].warm_up_s) == (DEFAULT, 0)
    assert given[3] == [*DEFAULT, "--warm-up", "0.0"]


def test_the_host_of_all_slow_pairs_is_named() -> None:
    hosts = ("a", "b", "c", "slow")
    pairs = [(one, other) for one in hosts for other in hosts if one != other]
    chosen = point(MIB, "bandwidth")

    def noted(slow: Callable[[tuple[str, ...]], bool]) -> str:
        times = {pair: [(40 if slow(pair) else 16) * MIB] * 10 for pair in pairs}
        launches = [replace(launch(0, SOCKETS, {chosen: times[pair]}), hosts=pair) for pair in pairs]
        (by_pair,) = table.tables(found_in(*launches))
        assert len(by_pair.rows) == 12
        return by_pair.note

    assert (
        noted(lambda pair: "slow" in pair) == "Slow: slow as receiver, slow as sender: below half of the fastest pair."
    )
    assert noted(lambda pair: pair[1] == "slow") == "Slow: slow as sender: below half of the fastest pair."
    assert noted(lambda pair: pair == ("a", "slow")) == ""
    assert noted(lambda pair: False) == ""
