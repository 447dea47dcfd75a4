"""Recorded exchanges: what a bundle tells of them, their histogram, and their replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlobd import cli
from dlobd.errors import UsageError
from dlobd.micro import places, recorded
from dlobd.micro.plan import Point, Route
from dlobd.micro.recorded import exchanges, histogram, replay_points
from dlobd.micro.request import Request
from dlobd.micro.results import Figures, Launch, PointResult, Results, empty
from dlobd.run.progress import Progress
from tests.captured import DATA
from tests.exchanging import BEGIN_NS, exchanged, ring, wire


def test_a_bundle_has_the_exchanges_that_all_ranks_recorded(tmp_path: Path) -> None:
    found = exchanges(ring(tmp_path))
    assert (found.exchange, found.channel, found.library) == ("ring", "tcp", "sockets")
    assert (found.model, found.ranks, found.fusion_bytes) == ("softmax-regression", 2, 64 << 20)
    assert [call.number for call in found.calls] == [0, 1, 2]
    assert [call.ns for call in found.calls] == [3_000_000, 9_000_000, 4_000_000], "of the slower rank"
    first = found.calls[0].wires
    assert [wire.end_ns - wire.start_ns for wire in first] == [2_000_000, 3_000_000]
    assert first[0].start_ns == BEGIN_NS
    assert first[1].transfers == ((0, 1, 600, 0), (1, 0, 604, 0), (0, 1, 80, 1), (1, 0, 80, 1))
    assert first[1].bytes == 1000
    assert found.median.number == 2


def test_both_ends_record_a_transfer_that_counts_once(tmp_path: Path) -> None:
    found = exchanges(ring(tmp_path))
    assert sorted(found.calls[0].transfers()) == [(0, 1, 80, 1), (0, 1, 600, 0), (1, 0, 80, 1), (1, 0, 604, 0)]
    table = histogram(found)
    assert [tuple(row) for row in table.rows] == [
        (80, 2.0, pytest.approx(160 / 1364)),
        (600, 1.0, pytest.approx(600 / 1364)),
        (604, 1.0, pytest.approx(604 / 1364)),
    ]
    assert [column.unit for column in table.columns] == ["number", "number", "share"]
    assert "3 exchanges" in table.title


def served(directory: Path) -> Path:
    """A parameter server: a rank records both directions, and the server's own spans are no exchanges."""
    lines = [[wire(0, 0, 5, [[rank, "ps-0", 300, 0], ["ps-0", rank, 300, 0]])] for rank in range(2)]
    return exchanged(directory, lines, exchange="ps", channel_library="ucx")


def test_transfers_of_a_server_count_at_its_ranks(tmp_path: Path) -> None:
    found = exchanges(served(tmp_path))
    assert found.library == "ucx"
    expected = [(0, "ps-0", 300, 0), ("ps-0", 0, 300, 0), (1, "ps-0", 300, 0), ("ps-0", 1, 300, 0)]
    assert list(found.calls[0].transfers()) == expected
    assert list(histogram(found).rows) == [(300, 4.0, 1.0)]


def test_a_replay_sends_what_rank_0_sent_in_the_median_exchange(tmp_path: Path) -> None:
    lines = [
        [wire(call, call, ms, [[1, 0, 7, 0], [0, 1, 10 + call, 0], [0, 1, 0, 1], [0, 1, 5, 2]]) for call, ms in calls]
        for calls in ([(0, 30), (1, 10), (2, 20)], [(0, 1), (1, 1), (2, 1)])
    ]
    (point,) = replay_points(exchanges(exchanged(tmp_path, lines, exchange="halving-doubling")), 0.5, 0.25)
    assert point.payload.sizes == (12, 5), "in order, without empty transfers"
    assert (point.benchmark, point.seconds, point.warm_up_s, point.pause_ns) == ("replay", 0.5, 0.25, 10**7 - 20)
    assert point.payload.name == "softmax-regression, halving-doubling, 2 ranks"
    assert point.messages == 2


def test_the_faster_of_two_exchanges_is_the_median(tmp_path: Path) -> None:
    lines = [[wire(0, 0, 9, []), wire(1, 1, 4, [])]] * 2
    assert exchanges(exchanged(tmp_path, lines, exchange="ring")).median.number == 1


def test_spans_without_end_or_transfers_are_no_exchanges(tmp_path: Path) -> None:
    lines = [[wire(0, 0, 9, []), wire(1, 1, 9, []), wire(2, 2, 9, [])] for _ in range(2)]
    del lines[0][1]["a"]["transfers"]
    lines[1][2] = wire(2, 2, 0, [], kind="b")
    found = exchanges(exchanged(tmp_path, lines, exchange="ring"))
    assert [call.number for call in found.calls] == [0]


NONE: tuple[list[Any], list[Any]] = ([], [])
FIRST, SECOND = [wire(0, 0, 9, [])], [wire(1, 1, 9, [])]


@pytest.mark.parametrize(
    ("lines", "exchange", "why"),
    [
        (NONE, "tf-ring", "that all ranks recorded: exchange tf-ring, 0 of 2 ranks"),
        ((FIRST, []), "ring", "exchange ring, 1 of 2 ranks"),
        ((FIRST, SECOND), "ring", "exchange ring, 2 of 2 ranks"),
    ],
)
def test_a_run_without_exchanges_is_an_error_of_one_line(lines: Any, exchange: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=why) as error:
        exchanges(exchanged(tmp_path, lines, exchange=exchange))
    assert error.value.remedy == recorded.REMEDY
    assert "\n" not in error.value.line


def test_the_exchange_of_an_own_job_is_unknown() -> None:
    with pytest.raises(UsageError, match="is your own job"):
        exchanges(DATA / "own-run")


def test_mpi_has_times_and_no_transfers(tmp_path: Path) -> None:
    found = exchanges(exchanged(tmp_path, [[wire(0, 0, 9, [])]] * 2, exchange="mpi", channel_library="mpi"))
    assert found.calls[0].ns == 9
    for refused in (lambda: histogram(found), lambda: replay_points(found, 1, 0)):
        with pytest.raises(UsageError, match="exchange mpi reports none"):
            refused()


# ---- the command


def test_the_command_replays_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[Point, ...]] = []

    def results(request: Request, on: str, link: str, progress: Progress) -> Results:
        measured.append(request.replay)
        plans, _ = request.plans(("tcp",))
        points = tuple(PointResult(point, (Figures(1, (4_000_000,)),)) for point in plans[0].points)
        return replace(empty("machine", on, 2), launches=(Launch(0, Route("tcp", "sockets"), (), points),))

    monkeypatch.setattr(places, "measure", results)
    path = ring(tmp_path / "runs" / "experiment")
    assert cli.main(["micro", "replay", "--run", str(path), "--time", "0.3", "--warm-up", "0.2"]) == 0
    ((point,),) = measured
    assert (point.payload.sizes, point.seconds, point.warm_up_s) == ((600, 80), 0.3, 0.2)
    out = capsys.readouterr().out
    assert out.index("Recorded transfers") < out.index("Replay:")
    by_id = ["--run", path.name, "--out", str(tmp_path / "runs")]
    assert cli.main(["micro", "replay", *by_id, "--quick", "--json"]) == 0
    assert measured[-1][0].seconds == 0.1
    assert capsys.readouterr().out.startswith("{"), "JSON has no table"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["replay"], "replay needs --run"),
        (["latency", "--run", "latest"], "replay needs --run"),
        (["--run", "latest"], "replay needs --run"),
    ],
)
def test_options_without_their_benchmark_are_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["micro", *words]) == UsageError.exit_code
    err = capsys.readouterr().err
    assert why in err
    assert "Next: dlobd micro " in err
    assert err.count("\n") == 1
