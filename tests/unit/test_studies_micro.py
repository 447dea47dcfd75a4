"""Studies of published micro-benchmarks: TF-gRPC-Bench and AR-gRPC."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.studies import ar_grpc, payload_histogram, tf_grpc_bench
from analysis.studies.payload_histogram import Payload
from dlobd.axes import DATASETS, MODELS
from dlobd.compare.median import Estimate
from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.micro import results
from dlobd.micro.payload import KIB, MIB, SCHEMES, payload
from dlobd.micro.plan import Point, Route
from dlobd.micro.request import gradient_shapes
from dlobd.micro.results import Figures, Launch, PointResult
from tests.captured import DATA
from tests.exchanging import ring


def written(path: Path, *points: Point) -> Path:
    """Write six launches with calls of 4 ms."""
    ends = (Figures(0, ()), Figures(1, (4_000_000,) * 10, (10**9,)))
    made = tuple(PointResult(point, ends) for point in points)
    launches = tuple(Launch(number, Route("tcp", "grpc"), ("a", "b"), made) for number in range(6))
    path.write_text(replace(results.empty("a machine", "here", 2), launches=launches).text())
    return path


def test_published_values_are_next_to_results(tmp_path: Path) -> None:
    points = [Point(name, payload(scheme)) for name in ("latency", "ps") for scheme in SCHEMES]
    texts, figure = tf_grpc_bench.report(Namespace(files=[written(tmp_path / "a.json", *points)]))
    *tables, conditions = texts
    assert [one.partition(",")[0] for one in tables] == ["Figure 8", "Figure 9", "Figure 13", "Figure 14"]
    uniform = next(line for line in tables[0].splitlines() if line.split()[:1] == ["uniform"])
    assert uniform.split()[1:5] == ["2.02", "1.97", "0.8", "2"]
    assert "(n=6)" in uniform
    assert "10 [10 to 10 (n=6)]" in tables[2]
    assert "a machine, place here; 6 launches" in conditions
    assert figure
    assert len(figure.axes) == 2


def test_results_without_its_payloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no payload of TF-gRPC-Bench"):
        tf_grpc_bench.report(Namespace(files=[written(tmp_path / "a.json", Point("latency", payload("8")))]))


def shares_of(one: Payload) -> list[float]:
    return [round(100 * share, 1) for share in one.shares().values()]


def test_classes_are_those_of_the_paper() -> None:
    sizes = {1: 1, KIB - 1: 1, KIB: 2, MIB - 4: 2, MIB: 3, 10 * MIB: 1, 11 * MIB: 1}
    assert shares_of(Payload("", "", sizes)) == [18.2, 36.4, 36.4, 9.1]
    assert Payload("", "", {512: 3, 2 * MIB: 1}).shares(of_bytes=True)["small"] == pytest.approx(0.00073, rel=0.01)


def test_messages_of_the_ring_are_aligned_chunks() -> None:
    """Two ranks halve 7,850 floats at a multiple of 16; each half is sent in both passes."""
    assert payload_histogram.tf_ring(7850, 2) == {4 * 3936: 2, 4 * 3914: 2}
    assert payload_histogram.tf_ring(3, 4) == {12: 6}, "empty chunks are not sent"
    large = payload_histogram.tf_ring(10 * MIB, 4)
    assert large == {5 * MIB: 8 * 6}, "chunks above 4 MiB are halved"


def test_derived_messages_have_the_bytes_that_the_kernel_counted() -> None:
    """Each rank of the captured run sent half of the messages of 30 steps; gRPC adds some percent."""
    (spans,) = (DATA / "native-run/spans/rank-0").iterdir()
    (line,) = [line for line in spans.read_text().splitlines() if '"n":"transport"' in line]
    sockets = json.loads(line)["a"]["after"]["sockets"]
    sent_bytes = sum(one["sent_bytes"] for one in sockets)
    own_bytes = 30 * sum(size * count for size, count in payload_histogram.tf_ring(7850, 2).items()) / 2
    assert 1 < sent_bytes / own_bytes < 1.07


def test_a_run_has_recorded_transfers_or_derived_messages(tmp_path: Path) -> None:
    run = ring(tmp_path)
    inside, outside = payload_histogram.of_run(DATA / "native-run"), payload_histogram.of_run(run)
    assert (inside.name, inside.origin) == ("softmax-regression, tf-ring, 2 ranks", "derived")
    assert inside.sizes == payload_histogram.tf_ring(7850, 2)
    assert (outside.origin, outside.sizes) == ("recorded", {80: 2.0, 600: 1.0, 604: 1.0})
    (text, _), figure = payload_histogram.report(Namespace(runs=[run], model=["lenet"], ranks=3))
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["lenet,", "lenet,", "softmax-regression,"]
    assert text.splitlines()[-1].split()[4:] == ["recorded", "4", "0.001364", "100.0", "%", *["0.0", "%"] * 3]
    assert figure
    assert len(figure.axes) == 2


def test_shapes_are_of_the_data_set_of_the_model() -> None:
    assert gradient_shapes("softmax-regression") == ((10,), (784, 10))
    assert (5, 5, 3, 32) in gradient_shapes("cifar10-quick")
    for row in MODELS:
        assert row.dataset in DATASETS.names()
    photographs = files.load("softmax-mnist", ["dataset=synthetic", "synthetic_classes=100"])
    assert gradient_shapes("softmax-regression", photographs) == ((100,), (3072, 100))


def test_the_recommendation_is_the_best_setting() -> None:
    fast, near, slow = (Estimate(value, value * 0.8, value * 1.2, 5) for value in (10.0, 11.0, 30.0))
    curves = [ar_grpc.Curve(label, {"4 KiB": one}) for label, one in (("a", fast), ("b", near), ("c", slow))]
    assert ar_grpc.text(ar_grpc.Study("Threshold", "us", True, curves)).splitlines()[-1] == (
        "4 KiB: best a; not shown to differ: b"
    )
    depths = ar_grpc.Curve("ucx", {"1": fast, "8": slow})
    assert ar_grpc.text(ar_grpc.Study("Depth", "MB/s", False, [depths])).splitlines()[-1] == "recommended: best 8"
