"""Predictions of exchanges: rounds and bytes against the collectives themselves, intervals, and the table."""

from __future__ import annotations

import math
import statistics
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from analysis.studies import script
from analysis.studies.exchange_model import (
    CONFIDENCE,
    ROUNDS,
    Prediction,
    busiest_bytes,
    fitted,
    from_other_models,
    predict,
    predicted,
)
from dlobd.channel import Channel
from dlobd.compare.median import median
from dlobd.errors import UsageError
from dlobd.micro.estimates import Fit
from dlobd.micro.payload import Payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.recorded import Call, Recorded, Transfer, Wire
from dlobd.micro.results import Figures, Launch, PointResult, Results, empty
from dlobd.network.collectives.all_reduce import SMALL_BYTES, HalvingDoubling, Ring
from tests.exchanging import ring

ALGORITHMS = {"ring": Ring, "halving-doubling": HalvingDoubling, "mpi": HalvingDoubling}


class CountingMesh:
    """Mesh of threads that counts bytes, and the longest chain of messages that wait for each other."""

    def __init__(self, rank: int, queues: Sequence[Sequence[SimpleQueue[Any]]]) -> None:
        self.rank, self.size, self._queues = rank, len(queues), queues
        self.chain = 0
        self.carried: Counter[tuple[int, int]] = Counter()

    def post(self, to: int, message: Any, deadline_s: float) -> None:
        self._queues[self.rank][to].put((message.copy(), self.chain + 1))
        self.carried[self.rank, to] += message.nbytes

    send = post

    def recv(self, sender: int, into: Any, deadline_s: float) -> None:
        into[:], chain = self._queues[sender][self.rank].get(timeout=20)
        self.chain = max(self.chain, chain)
        self.carried[sender, self.rank] += into.nbytes

    def drain(self) -> None:
        pass


def all_reduced(exchange: str, ranks: int, floats: int) -> list[CountingMesh]:
    queues: list[list[SimpleQueue[Any]]] = [[SimpleQueue() for _ in range(ranks)] for _ in range(ranks)]
    meshes = [CountingMesh(rank, queues) for rank in range(ranks)]
    arrays = [np.full(floats, rank + 1.0, np.float32) for rank in range(ranks)]
    runs = [ALGORITHMS[exchange](mesh) for mesh in meshes]  # type: ignore[arg-type]
    threads = [
        threading.Thread(target=run, args=(array, 0.0), daemon=True) for run, array in zip(runs, arrays, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert all((array == ranks * (ranks + 1) / 2).all() for array in arrays)
    return meshes


def run_of(
    exchange: str,
    transfers: Sequence[Sequence[Transfer]],
    ns: Sequence[int] = (7,),
    size: int = 960,
    **changes: Any,
) -> Recorded:
    """Return a run whose exchanges have the same transfers at each rank."""
    calls = [Call(k, tuple(Wire(0, one, size, tuple(own)) for own in transfers)) for k, one in enumerate(ns)]
    run = Recorded("R", exchange, Channel("tcp@eth0"), "sockets", "mlp", len(transfers), 64 << 20, tuple(calls))
    return replace(run, **changes)


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize(
    ("exchange", "floats"), [("ring", 840), ("halving-doubling", 840), ("halving-doubling", 84_000), ("mpi", 84_000)]
)
def test_rounds_and_bytes_are_those_of_the_collectives(exchange: str, floats: int, ranks: int) -> None:
    meshes = all_reduced(exchange, ranks, floats)
    chain = max(mesh.chain for mesh in meshes)
    rounds = ROUNDS[exchange](ranks, floats * 4)
    if floats * 4 <= SMALL_BYTES and exchange != "ring":
        assert rounds - 1 <= chain <= rounds, "ranks that fold in need not wait for all rounds of the others"
    else:
        assert rounds == chain
    transfers = [[(*ends, size, 0) for ends, size in mesh.carried.items()] for mesh in meshes]
    directions = [
        sum(size for ends, size in mesh.carried.items() if ends[side] == mesh.rank)
        for mesh in meshes
        for side in (0, 1)
    ]
    recorded = run_of(exchange, [()] * ranks if exchange == "mpi" else transfers, size=floats * 4)
    if exchange == "mpi":
        # halves of an odd number of elements differ by one element
        assert busiest_bytes(recorded) == [pytest.approx(max(directions), abs=4)]
    else:
        assert busiest_bytes(recorded) == [max(directions)]
    total = sum(size for mesh in meshes for ends, size in mesh.carried.items() if ends[0] == mesh.rank)
    assert busiest_bytes(replace(recorded, channel=Channel("tcp"))) == [total]


def test_each_buffer_has_its_rounds_and_its_busiest_link() -> None:
    own = [[(0, 1, 600, 0), (1, 0, 40, 0), (0, 1, 8, 1), (1, 0, 90, 1)]] * 2
    assert busiest_bytes(run_of("ring", own)) == [600, 90]
    assert predict(run_of("ring", own), 1000, 2) == 2 * 2 * 1000 + 2 * 690


def test_the_link_of_a_server_is_the_busiest() -> None:
    own = [[(rank, "ps-0", 300, 0), ("ps-0", rank, 300, 0)] for rank in range(3)]
    assert predict(run_of("ps", own), 1000, 2) == 2 * 1000 + 2 * 900
    two = [
        [(rank, f"ps-{k}", 150, 0) for k in range(2)] + [(f"ps-{k}", rank, 150, 0) for k in range(2)] for rank in (0, 1)
    ]
    assert predict(run_of("ps", two), 1000, 2) == 2 * 1000 + 2 * 300


def test_mpi_has_as_few_buffers_as_its_bytes_need() -> None:
    mpi = run_of("mpi", [()] * 2, fusion_bytes=400)
    assert busiest_bytes(mpi) == [320, 320, 320]
    assert predict(mpi, 1000, 2) == 3 * 2 * 1000 + 2 * 960


def test_the_median_exchange_is_predicted() -> None:
    calls = tuple(
        Call(k, (Wire(0, ns, 9, ((0, 1, size, 0),)),) * 2) for k, ns, size in ((0, 5, 1), (1, 9, 2), (2, 7, 4))
    )
    assert predict(run_of("ring", [()] * 2, calls=calls), 0, 1) == 4


@pytest.mark.parametrize("exchange", ["ps-async", "tf-ps"])
def test_other_exchanges_have_no_prediction(exchange: str) -> None:
    with pytest.raises(UsageError, match=f"no prediction for exchange {exchange} of run R") as error:
        predict(run_of(exchange, [[(0, 1, 8, 0)]] * 2), 1, 1)
    assert error.value.remedy == "name a run with exchange ring, halving-doubling, mpi, ps"


def fit_of(*launches: tuple[float, float]) -> Fit:
    alpha, beta = (median(column) for column in zip(*launches, strict=True))
    assert alpha
    assert beta
    return Fit(alpha, beta, 0.0, 3, launches)


def test_times_and_residual_have_intervals() -> None:
    """The 90 % interval of the prediction is exact with five launches: from the least to the greatest."""
    run = run_of("ring", [[(0, 1, 600, 0), (1, 0, 600, 0)]] * 2, range(1000, 12_000, 1000))
    found = predicted(run, "fast", fit_of((900, 2), (1100, 2), (1000, 2), (950, 2), (1010, 2)))
    assert found.predicted == (3200, 3000, 3400)
    assert found.attributed == (6000, 1500, 10_500), "the middle 90 % of eleven exchanges"
    value, low, high = found.predicted
    assert low
    assert high
    assert found.residual == (6000 - value, 1500 - high, 10_500 - low)


def test_a_fit_of_one_launch_has_no_interval() -> None:
    run = run_of("ring", [[(0, 1, 600, 0), (1, 0, 600, 0)]] * 2, (9000, 3000, 4000, 5000))
    found = predicted(run, "fast", fit_of((1000, 2)))
    assert found.predicted == (pytest.approx(3200), None, None)
    assert found.residual == (pytest.approx(1300), None, None)


def attributed(model: str, ns: float) -> Prediction:
    """Return a prediction of 100 ns for an exchange that took another time."""
    return Prediction(run_of("ring", [()], model=model), "fast", (100.0, None, None), (ns, None, None))


def test_an_interval_is_from_the_residuals_of_the_other_models() -> None:
    ratios = {"a": (1.1, 1.3), "b": (1.2,), "c": (5.0,)}
    points = [attributed(model, 100 * one) for model, every in ratios.items() for one in every]
    logs = [math.log(one) for one in (1.1, 1.3, 1.2)]
    half = 2.919986 * statistics.stdev(logs) * math.sqrt(4 / 3)  # Student's quantile at 0.95 with 2 degrees of freedom
    middle = statistics.fmean(logs)
    expected = [100 * math.exp(middle - half), 100 * math.exp(middle + half)]
    assert from_other_models(points[-1], points) == pytest.approx(expected, rel=1e-6)
    assert from_other_models(points[0], points[:3]) is None, "one residual of another model"


def test_intervals_hold_for_nine_of_ten_points() -> None:
    draw = np.random.default_rng(5)
    held = []
    for _ in range(500):
        points = [attributed(f"{k}", 100 * math.exp(0.3 + 0.2 * draw.normal())) for k in range(6)]
        low_ns, high_ns = from_other_models(points[0], points) or (0, 0)
        held.append(low_ns <= points[0].attributed[0] <= high_ns)
    assert np.mean(held) == pytest.approx(CONFIDENCE, abs=0.04)  # three standard errors


# ---- fits


def latencies(*routes: Route, sizes: Sequence[int] = (8, 1000, 4000)) -> Results:
    """Return results of two launches per route: 2 us and 0.5 ns per byte, one way."""
    launches = []
    for route in routes:
        points = tuple(
            PointResult(Point("latency", Payload(str(size), (size,))), (Figures(1, (round(2 * (2000 + size / 2)),)),))
            for size in sizes
        )
        launches += [Launch(number, route, (), points) for number in range(2)]
    return replace(empty("machine", "here", 2), launches=tuple(launches))


SOCKETS = Route("tcp", "sockets")
RUN = run_of("ring", [[(0, 1, 600, 0), (1, 0, 600, 0)]] * 2, channel=Channel("tcp"))


def test_the_fit_is_of_the_route_of_the_run() -> None:
    others = Route("shm", "sockets"), Route("tcp", "ucx"), Route("tcp", "sockets", "ring")
    fit = fitted(latencies(*others, SOCKETS), RUN)
    assert (fit.alpha.value, fit.beta.value) == (pytest.approx(2000), pytest.approx(0.5))
    both = latencies(Route("tcp@eth0", "sockets"), SOCKETS, sizes=(8, 1000, 4000))
    assert fitted(both, RUN).alpha.value == pytest.approx(2000), "the channel itself is preferred"
    assert fitted(latencies(SOCKETS), replace(RUN, channel=Channel("tcp@eth1"))).points == 3


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (latencies(Route("shm", "ucx"), Route("tcp", "ucx"), Route("ipoib@ib0", "sockets")), "no such route"),
        (latencies(SOCKETS, sizes=(8, 1000)), "no such route with latencies of 3 sizes"),
        (latencies(Route("tcp@eth0", "sockets"), Route("tcp@eth1", "sockets")), "2 such routes"),
        (latencies(Route("tcp", "sockets", "ring")), "no such route"),
    ],
)
def test_a_fit_of_another_route_is_refused(results: Results, why: str) -> None:
    with pytest.raises(UsageError, match=f"Run R used sockets over tcp, and the results have {why}") as error:
        fitted(results, RUN)
    assert error.value.remedy == "dlobd micro latency --channel tcp --library sockets -o FILE"


def test_the_study_has_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fast.json"
    file.write_text(latencies(SOCKETS).text())
    bundle = ring(tmp_path)
    assert study(tmp_path, "--link", file, bundle) == 0
    out = " ".join(capsys.readouterr().out.split())
    # two buffers of 2 rounds, and 1204 + 160 bytes over loopback: 4 * 2000 + 0.5 * 1364 ns; measured: 3, 9 and 4 ms
    assert "fast" in out
    for cell in ("0.008682", "4 (3.1 to 8.5)", "+3.991"):
        assert cell in out
    assert "attributed: 99.8% of 1 runs" in out
    assert (tmp_path / "exchange-prediction.svg").stat().st_size > 1000
    file.write_text(latencies(Route("tcp", "ucx")).text())
    assert study(tmp_path, "--link", file, bundle) == UsageError.exit_code
    assert "no such route" in capsys.readouterr().err
    assert study(tmp_path, "--link", file) == UsageError.exit_code
    assert "names no run" in capsys.readouterr().err


def study(out: Path, *words: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["analysis", "exchange_prediction", *map(str, words), "-o", str(out)])
        return script.main("", {"exchange_prediction": ""})
