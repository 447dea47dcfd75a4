"""Stack overhead: sums, pairs within repeats, refusals, and warnings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analysis.studies import pictures
from analysis.studies.runs import experiment as experiment_of
from analysis.studies.runs import launch_label, load
from analysis.studies.stack_overhead import PUBLISHED, layer_table, picture, stack_overhead, table
from dlobd.bundle.store import Bundle
from dlobd.compare.runset import Member, Repeat
from dlobd.errors import UsageError
from dlobd.record.resources import HostUse, PageCache, ResourceUse
from tests.repeats import experiment, member, on_disk, record, runset

NATIVE_S = {"client": 0.1, "launcher": 0.4, "tensorflow": 9.5}
STACK_S = {"client": 0.1, "yarn": 3.0, "spark": 20.0, "launcher": 0.9, "feed": 0.5, "hdfs": 3.5, "tensorflow": 10.0}


def runs(repeats: int = 6, drift_s: float = 0.0) -> list[Member]:
    made = []
    for repeat in range(1, repeats + 1):
        for place, (way, layers) in enumerate((("native", NATIVE_S), ("barrier feed", STACK_S))):
            drifted = layers | {"tensorflow": layers["tensorflow"] + drift_s * repeat}
            made.append(member(repeat, 2 * repeat + place, experiment(way), drifted))
    return made


def test_the_overhead_is_the_difference_to_native_and_its_layers_add_up() -> None:
    """38 s against 10 s: 28 s more, 3.8 times; YARN 3 s, Spark 20 s, launcher 0.5 s."""
    native, barrier = stack_overhead(runset(runs())).points
    assert (native.label, barrier.label, barrier.pairs) == ("native", "barrier feed", 6)
    assert (barrier.overhead and barrier.overhead.value) == pytest.approx(28)
    assert (barrier.ratio and barrier.ratio.value) == pytest.approx(3.8)
    over = {name: each.value for name, each in (barrier.layer_overhead or {}).items()}
    assert over == pytest.approx(
        {"client": 0, "yarn": 3, "spark": 20, "launcher": 0.5, "feed": 0.5, "hdfs": 3.5, "tensorflow": 0.5}
    )
    assert list(over) == list(STACK_S)  # in the order of every report
    assert sum(barrier.layers.values()) == pytest.approx(barrier.wall.value) == 38
    yarn_s, yarn_share = barrier.groups["YARN"]
    spark_s, spark_share = barrier.groups["Spark"]
    assert (yarn_s.value, spark_s.value) == pytest.approx((3, 21.4))  # Spark's group has launcher and feed
    assert (yarn_share.value, spark_share.value) == pytest.approx((3 / 38, 21.4 / 38))


def test_drift_cancels_and_five_repeats_have_no_interval() -> None:
    found = stack_overhead(runset(runs(drift_s=5)))
    _, barrier = found.points
    assert barrier.wall.high - barrier.wall.low > 10
    assert (barrier.overhead.low, barrier.overhead.high) == pytest.approx((28, 28))
    assert found.warnings == ()
    found = stack_overhead(runset(runs(repeats=5)))
    assert found.points[1].overhead.low is None
    assert found.warnings == ("Too few repeats for an interval, which needs 6: barrier feed 5.",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 3}, "did different work: epochs (2, 3)."),
        ({"batch_size": 50, "seed": 9}, "did different work: batch_size (100, 50), seed (1, 9)."),
        ({"deploy_mode": "cluster"}, "are both barrier feed with different settings: deploy_mode"),
    ],
)
def test_runs_of_different_work_are_refused_with_the_fields(changes: dict[str, Any], said: str) -> None:
    other = member(7, 59, dataclasses.replace(experiment("barrier feed"), **changes), STACK_S)
    with pytest.raises(UsageError) as raised:
        stack_overhead(runset([*runs(), other]))
    assert said in raised.value.line


def test_stack_settings_and_the_page_cache_may_differ() -> None:
    warm = [member(r, 40 + r, experiment("tfos read", page_cache="warm"), STACK_S) for r in range(1, 7)]
    found = stack_overhead(runset([*runs(), *warm]))
    assert [point.label for point in found.points[:1]] == ["native"]
    assert len(found.points) == 3
    assert "page-cache: requested as as-is and warm" in " ".join(found.warnings)


def test_comparisons_need_native_and_stack_runs_of_one_repeat() -> None:
    every = runs()
    for of, said in (("barrier feed", "No native run has status ok"), ("native", "No run with a stack")):
        with pytest.raises(UsageError, match=said):
            stack_overhead(runset([one for one in every if label(one) == of]))
    apart = [
        dataclasses.replace(one, repeat=Repeat("other", one.repeat.number)) if label(one) == "native" else one
        for one in runs()
    ]
    with pytest.raises(UsageError, match="No repeat has both a native run and a run of barrier feed"):
        stack_overhead(runset(apart))


def label(one: Member) -> str:
    return launch_label(experiment_of(one.run))


def changed(every: list[Member], place: int, **changes: Any) -> list[Member]:
    one = every[place]
    return [*every[:place], dataclasses.replace(one, run=dataclasses.replace(one.run, **changes)), *every[place + 1 :]]


def test_doubts_about_a_comparison_are_warnings() -> None:
    every = changed(runs(), 1, page_cache=PageCache("as-is", 90, 100, 90))
    assert stack_overhead(runset(every)).warnings == ()
    failed = stack_overhead(runset(changed(every, 3, status="failed", reason="died")))
    assert "Left out: 1 of 12 runs: run 20260102T030005Z-0a1b is failed: died." in failed.warnings
    assert [point.runs for point in failed.points] == [6, 5]
    for changes, said in (
        ({"platform": {"system": "Linux", "cores": 8}}, "machine: cores 2 and 8"),
        ({"versions": {"dlobd": "0.2.0"}}, "versions: dlobd 0.1.0 and 0.2.0"),
        ({"page_cache": PageCache("as-is", 5, 100, 5)}, "5 to 90 % of the training files were in memory"),
    ):
        (line,) = stack_overhead(runset(changed(every, 2, **changes))).warnings
        assert line.startswith("Different environments, ")
        assert said in line
    later = sorted(every, key=lambda one: label(one) != "native")
    apart = [
        dataclasses.replace(one, run=dataclasses.replace(one.run, started_at=f"2026-01-02T04:{minute:02}:00Z"))
        for minute, one in enumerate(later)
    ]
    (line,) = stack_overhead(runset(apart)).warnings
    assert "order: one side ran after the other" in line


def test_runs_disturbed_by_other_machines_are_left_out_and_listed() -> None:
    every = runs(7)
    for number, stolen_ns in ((3, 2 * 10**9 + 1), (5, 2 * 10**9)):
        host = HostUse("h", "d", 2, 1, 1, 18 * 10**9, stolen_ns, 1, 1, 1, None, None, 0, 0, 0)
        used = ResourceUse(1, 1, 1, 1, (host,), (), (), ())
        every = changed(every, number, resources=used)
    found = stack_overhead(runset(every))
    assert [point.runs for point in found.points] == [7, 6]
    (line,) = found.warnings
    assert line == (
        f"Left out: 1 of 14 runs: run {every[3].run.run_id} lost more than 10 % of the CPU time to other virtual "
        "machines."
    )


def test_bundles_without_their_series_are_paired_by_order_and_series_by_their_file(tmp_path: Path) -> None:
    records = [(one.repeat.number, record_of(one)) for one in runs(6)]
    path = on_disk(tmp_path, records)
    bundles = [Bundle(tmp_path / r["configuration"]["name"] / r["run_id"]).path for _, r in records]
    by_series, by_bundle = load([path, *bundles]), load(bundles)
    assert by_series.runs == by_bundle.runs
    assert [one.repeat.number for one in by_series.members] == [one.repeat.number for one in by_bundle.members]
    assert stack_overhead(by_series).points == stack_overhead(by_bundle).points
    assert stack_overhead(by_series).warnings == ()
    assert stack_overhead(by_bundle).warnings == ("Runs without a series are paired in the order of their start.",)


def record_of(one: Member) -> dict[str, Any]:
    number = int(one.run.run_id[11:13]) * 60 + int(one.run.run_id[13:15])
    return record(number, experiment_of(one.run), {row.layer: row.ns / 1e9 for row in one.run.layers})


def test_tables_and_picture(tmp_path: Path) -> None:
    found = stack_overhead(runset(runs(drift_s=0.2)))
    _, barrier = table(found).to_dict("records")
    assert barrier["overhead, s"].startswith("28 (28 to 28)")
    assert barrier["YARN, s"].startswith("3 ")
    native, over = layer_table(found).to_dict("records")
    assert (native[""], native["spark, s"], native["launcher, s"]) == ("native, its own", "-", "0.4")
    assert over["launcher, s"] == "0.5 (0.5 to 0.5)"
    for suffix in pictures.SUFFIXES:
        for name in ("one", "two"):
            pictures.write(picture(found), tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    assert "must not be added" in PUBLISHED
