"""Comparison of channels over runs, parameter servers against all-reduces, and their scripts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analysis.studies import channel_comparison, ps_vs_allreduce
from dlobd.compare.runset import RunSet, without_series
from dlobd.record.run import Run
from tests.analysis_scripts import script
from tests.repeats import experiment, on_disk, record

PLANE = {
    "plane": "exchange",
    "kind": "tcp",
    "device": "",
    "interface": "eth0",
    "addresses": [],
    "soft": False,
    "evidence": ["constructed"],
    "asked": "tcp",
    "agrees": True,
}


def run(number: int, exchange: str, wire_ms: int, **changes: Any) -> dict[str, Any]:
    """Return a run of two ranks with ten exchanges each; the second rank is slower on the wire."""
    chosen = dataclasses.replace(experiment("barrier read"), name=f"x{number % 3}", exchange=exchange, **changes)
    parts = {"pack_ns": 10_000_000, "wait_for_peers_ns": 20_000_000, "unpack_ns": 5_000_000}
    uses = [
        {
            "role": role,
            "index": 0,
            "calls": 10,
            "bytes": 1000,
            "compute_ns": 1,
            "overlap": 0.0,
            **parts,
            "wire_ns": wire_ms * scale * 10**7,
            "exchange_ns": wire_ms * scale * 10**7 + 35_000_000,
        }
        for role, scale in (("chief", 1), ("worker", 2))
    ]
    inside = exchange == "tf-ring"
    return record(number, chosen, {"spark": 5.0}, exchange=[] if inside else uses, transport=[PLANE])


def chosen(*records: dict[str, Any]) -> RunSet:
    return without_series("", (Run.from_json(each) for each in records))


def test_the_slowest_rank_gives_the_time_of_an_exchange() -> None:
    found = channel_comparison.points(chosen(*(run(n, "ring", 1 + n) for n in range(3)), run(3, "tf-ring", 1)))
    ring, inside = found
    assert ring.label == "softmax-regression, 2 ranks: ring over tcp (sockets)"
    assert (ring.runs, ring.exchange_ms, ring.used) == (3, pytest.approx(2 * 2 + 3.5), ("tcp (eth0)",))
    assert ring.parts_ms == pytest.approx({"pack": 1.0, "wait_for_peers": 2.0, "wire": 4.0, "unpack": 0.5})
    assert inside.label.endswith("tf-ring over tcp (tensorflow)")
    assert (inside.exchange_ms, set(inside.parts_ms.values())) == (None, {None})
    assert channel_comparison.table(found)["exchange"].tolist() == ["7.5", "-"]


def test_channels_without_a_run_are_listed_with_a_reason() -> None:
    found = dict(channel_comparison.unavailable(chosen(run(0, "ring", 1))))
    assert set(found) == {"ipoib", "rdma", "shm"}
    assert found["shm"] == "no given run uses it"
    assert all(found.values())


def test_the_script_shows_table_and_picture(tmp_path: Path) -> None:
    series = on_disk(tmp_path / "runs", [(1, run(n, exchange, 1)) for n, exchange in enumerate(("ring", "ps"))])
    done = script("channel_comparison.py", series, "-o", tmp_path / "new", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ps over tcp (sockets)" in done.stdout
    assert "unavailable: channel rdma: " in done.stdout
    assert "<svg" in (tmp_path / "new" / "channel-comparison.svg").read_text()


def test_parameter_servers_are_shown_beside_all_reduces() -> None:
    times = {"ring": {2: [0.001, 0.003, 0.002], 4: [0.004]}, "ps, 1 server": {2: [0.002], 4: [0.008]}}
    (head, table), figure = ps_vs_allreduce.shown(times, 1000, "1gbit")
    assert "1,000 bytes (cifar10-quick), links of 1gbit" in head
    assert "2 (1-3)" in table
    assert "8 (8-8)" in table
    (axes,) = figure.axes
    assert [line.get_text() for line in axes.get_legend().get_texts()] == ["ring", "ps, 1 server"]


@pytest.mark.timeout(300)
def test_the_script_measures_parameter_servers(tmp_path: Path) -> None:
    done = script("ps_vs_allreduce.py", "--ranks", 2, "--repeats", 1, "-o", tmp_path, cwd=tmp_path)
    if "need root" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "ps, 1 server per rank" in done.stdout
    assert (tmp_path / "ps-vs-allreduce.png").exists()
    refused = script("ps_vs_allreduce.py", "--rate", "quick", "--ranks", 2, cwd=tmp_path)
    assert refused.returncode != 0
    assert len(refused.stderr.strip().splitlines()[-1:]) == 1


@pytest.mark.timeout(300)
def test_the_script_measures_the_studies_of_ar_grpc(tmp_path: Path) -> None:
    done = script("ar_grpc.py", "--launches", 1, "--time", 0.02, "-o", tmp_path, cwd=tmp_path)
    if "need root" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "Eager threshold of library ucx, latency, us one way" in done.stdout
    assert done.stdout.count("recommended: best ") == 2
    assert (tmp_path / "ar-grpc.svg").exists()
