"""Studies of published micro-benchmarks: TF-gRPC-Bench and AR-gRPC."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.studies import ar_grpc, tf_grpc_bench
from dlobd.errors import UsageError
from dlobd.micro import results
from dlobd.micro.estimates import Estimate
from dlobd.micro.payload import SCHEMES, payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.results import Figures, Launch, PointResult


def written(path: Path, *points: Point) -> Path:
    """Write two launches with calls of 4 ms."""
    ends = (Figures(0, ()), Figures(1, (4_000_000,) * 10, (10**9,)))
    made = tuple(PointResult(point, ends) for point in points)
    launches = tuple(Launch(number, Route("tcp", "grpc"), ("a", "b"), made) for number in range(2))
    path.write_text(replace(results.empty("a machine", "here", 2), launches=launches).text())
    return path


def test_published_values_are_next_to_results(tmp_path: Path) -> None:
    points = [Point(name, payload(scheme)) for name in ("latency", "ps") for scheme in SCHEMES]
    texts, figure = tf_grpc_bench.report(Namespace(files=[written(tmp_path / "a.json", *points)]))
    *tables, conditions = texts
    assert [one.partition(",")[0] for one in tables] == ["Figure 8", "Figure 9", "Figure 13", "Figure 14"]
    uniform = next(line for line in tables[0].splitlines() if line.split()[:1] == ["uniform"])
    assert uniform.split()[1:5] == ["2.02", "1.97", "0.8", "2"]
    assert "(n=2)" in uniform
    assert "10 [10 to 10 (n=2)]" in tables[2]
    assert "a machine, place here; 2 launches" in conditions
    assert figure
    assert len(figure.axes) == 2


def test_results_without_its_payloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no payload of TF-gRPC-Bench"):
        tf_grpc_bench.report(Namespace(files=[written(tmp_path / "a.json", Point("latency", payload("8")))]))


def test_the_recommendation_is_the_best_setting() -> None:
    fast, near, slow = (Estimate(value, value * 0.8, value * 1.2, 5) for value in (10.0, 11.0, 30.0))
    curves = [ar_grpc.Curve(label, {"4 KiB": one}) for label, one in (("a", fast), ("b", near), ("c", slow))]
    assert ar_grpc.text(ar_grpc.Study("Threshold", "us", True, curves)).splitlines()[-1] == (
        "4 KiB: best a; not shown to differ: b"
    )
    depths = ar_grpc.Curve("ucx", {"1": fast, "8": slow})
    assert ar_grpc.text(ar_grpc.Study("Depth", "MB/s", False, [depths])).splitlines()[-1] == "recommended: best 8"
