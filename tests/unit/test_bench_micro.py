"""The page of `make micro`."""

from __future__ import annotations

import pytest

from bench import micro, micro_alarms, predictions
from bench.false_alarms import Count
from bench.micro import Part, sections_of
from dlobd.experiment import files
from dlobd.fields import plain
from dlobd.micro import results
from dlobd.micro.payload import payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.ranks import MPI_ALLREDUCE
from dlobd.micro.results import Figures, Launch, PointResult


def kept(figures: dict[Route, int], point: Point, reference: float | None = None) -> micro.Kept:
    launches = tuple(
        Launch(0, route, ("a", "b"), (PointResult(point, (Figures(0, (time_ns,) * 10),)),))
        for route, time_ns in figures.items()
    )
    found = results.Results(1, "", "", "", 2, None, launches)
    return {"results": plain(found), "perftest": {f"{point.benchmark} {point.payload.bytes}": reference}}


def test_ratios_are_within_launches() -> None:
    point, ucx = Point("latency", payload("4K")), Route("shm", "ucx")
    every = [kept({ucx: 2 * us * 2000}, point, us) for us in (4.0, 5.0, 6.0, 7.0, 8.0, 9.0)]
    first, table, compared = sections_of(Part("Shared memory", "", list), every)
    assert first == "### Shared memory"
    assert "| 4 KiB | ucx shm |" in table
    row = compared.splitlines()[-1]
    assert row.split(" | ")[:2] == ["| latency, 4 KiB", "6.5"]
    assert "2 (2 to 2" in row


def test_all_reduces_are_compared_with_mpi() -> None:
    point = Point("exchange", payload("4K"))
    mpi, ring = Route("tcp", "mpi", MPI_ALLREDUCE), Route("tcp", "sockets", "ring")
    *_, compared = sections_of(Part("All-reduce", "", list), [kept({mpi: 1000, ring: 3000}, point)] * 6)
    assert compared.splitlines()[-1].startswith("| 4 KiB | 3 (3 to 3")
    only_mpi = kept({mpi: 1000}, Point("exchange", payload("8K")))["results"]["launches"]
    one = kept({mpi: 1000, ring: 3000}, point)
    one["results"]["launches"] += only_mpi
    *_, compared = sections_of(Part("All-reduce", "", list), [one] * 6)
    assert compared.splitlines()[-1] == "| 8 KiB | - |"


@pytest.mark.parametrize("model", predictions.MODELS)
def test_predicted_runs_have_valid_settings(model: str) -> None:
    for exchange in predictions.EXCHANGES:
        shipped, *settings = predictions.settings_of(model, exchange)
        chosen = files.load(shipped, settings)
        assert (chosen.model, chosen.exchange, chosen.launcher, chosen.max_steps) == (model, exchange, "native", 20)
    assert len(predictions.MODELS) * len(predictions.EXCHANGES) * len(predictions.RATES) >= 24


def test_false_alarms_have_a_limit() -> None:
    found = micro_alarms.text(Count(6, 200))
    assert "200 comparisons" in found
    assert "latency at 4 KiB and bandwidth at 1 MiB" in found
    assert "6, 3.0%; at most 5.8% with 95 % confidence" in found
