"""Native against in-stack: sums that hold, pairs within repeats, refusals, and doubts that are said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from repeats import experiment, on_disk, record, taken

from dlobd.bundle.store import Bundle
from dlobd.errors import UsageError
from dlobd.record.resources import HostUse, PageCache, ResourceUse
from dlobd.report import blocks, charts, pictures
from dlobd.report.blocks import Taken
from dlobd.report.stack_overhead import PUBLISHED, layer_table, stack_overhead, table

NATIVE_S = {"client": 0.1, "launcher": 0.4, "tensorflow": 9.5}
STACK_S = {"client": 0.1, "yarn": 3.0, "spark": 20.0, "launcher": 0.9, "feed": 0.5, "hdfs": 3.5, "tensorflow": 10.0}


def runs(repeats: int = 6, drift_s: float = 0.0) -> list[Taken]:
    """Native and barrier in each repeat; `drift_s` more of TensorFlow for both, from repeat to repeat."""
    made = []
    for repeat in range(1, repeats + 1):
        for place, (way, layers) in enumerate((("native", NATIVE_S), ("barrier feed", STACK_S))):
            drifted = layers | {"tensorflow": layers["tensorflow"] + drift_s * repeat}
            made.append(taken(repeat, 2 * repeat + place, experiment(way), drifted))
    return made


def test_the_overhead_is_the_difference_to_native_and_its_layers_add_up() -> None:
    """38 s against 10: 28 s more, 3.8 times; of which YARN 3, Spark 20, the launcher 0.5."""
    native, barrier = stack_overhead(runs()).points
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


def test_what_drifts_from_repeat_to_repeat_cancels_in_the_overhead() -> None:
    """Both take longer in each repeat: the walls are uncertain, their difference within repeats is not."""
    found = stack_overhead(runs(drift_s=5))
    _, barrier = found.points
    assert barrier.wall.high is not None
    assert barrier.wall.low is not None
    assert barrier.wall.high - barrier.wall.low > 10
    assert barrier.overhead is not None
    assert (barrier.overhead.low, barrier.overhead.high) == pytest.approx((28, 28))
    assert found.warnings == ()


def test_five_repeats_have_no_interval_and_say_so() -> None:
    """The values stay; from the lowest to the highest would hold in 15 of 16 cases, which is less than 95 %."""
    found = stack_overhead(runs(repeats=5))
    assert found.points[1].overhead is not None
    assert found.points[1].overhead.low is None
    assert found.warnings == ("Too few repeats for an interval, which needs 6: barrier feed 5.",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 3}, "did not do the same work: they differ in epochs (2, 3)."),
        ({"batch_size": 50, "seed": 9}, "did not do the same work: they differ in batch_size (100, 50), seed (1, 9)."),
        ({"deploy_mode": "cluster"}, "are both barrier feed, but not alike: they differ in deploy_mode"),
    ],
)
def test_runs_of_other_work_are_refused_with_the_keys(changes: dict[str, Any], said: str) -> None:
    """One line that names what differs, and both values."""
    other = taken(7, 59, dataclasses.replace(experiment("barrier feed"), **changes), STACK_S)
    with pytest.raises(UsageError) as raised:
        stack_overhead([*runs(), other])
    assert said in raised.value.line


def test_ways_and_the_page_cache_are_no_other_work() -> None:
    """What differs on the way is what is compared; another state of the page cache is a doubt, no refusal."""
    warm = [taken(r, 40 + r, experiment("tfos read", page_cache="warm"), STACK_S) for r in range(1, 7)]
    found = stack_overhead([*runs(), *warm])
    assert [point.label for point in found.points[:1]] == ["native"]
    assert len(found.points) == 3
    assert "different page cache states: page_cache as-is and warm" in " ".join(found.warnings)


def test_without_native_or_without_a_stack_there_is_no_comparison() -> None:
    """Each in one line, which says what to add."""
    every = runs()
    for of, said in (("barrier feed", "No native run is ok"), ("native", "no run in a stack")):
        with pytest.raises(UsageError, match=said):
            stack_overhead([one for one in every if one.label == of])


def test_a_native_run_of_another_repeat_is_no_pair() -> None:
    """Runs of two series share no repeat."""
    apart = [Taken(("other", one.repeat[1]), one.run) if one.label == "native" else one for one in runs()]
    with pytest.raises(UsageError, match="No repeat has both a native run and one of barrier feed"):
        stack_overhead(apart)


def changed(every: list[Taken], place: int, **changes: Any) -> list[Taken]:
    """The runs, one of them otherwise."""
    one = every[place]
    return [*every[:place], Taken(one.repeat, dataclasses.replace(one.run, **changes)), *every[place + 1 :]]


def test_what_makes_a_comparison_doubtful_is_said() -> None:
    """A failed run, another machine, another version, and repeats that lie in each other."""
    every = changed(runs(), 1, page_cache=PageCache("as-is", 90, 100, 90))
    assert blocks.warnings(every) == []
    failed = stack_overhead(changed(every, 3, status="failed", reason="died"))
    assert "Left out: 1 of 12 runs, not ok: 1 failed: 20260102T030005Z-0a1b is failed (died)." in failed.warnings
    assert [point.runs for point in failed.points] == [6, 5]
    for changes, said in (
        ({"platform": {"system": "Linux", "cores": 8}}, "different machines: cores 2 and 8"),
        ({"versions": {"dlobd": "0.2.0"}}, "different versions: dlobd 0.1.0 and 0.2.0"),
        ({"started_at": "2026-01-02T03:59:00Z"}, "not interleaved"),
        ({"page_cache": PageCache("as-is", 5, 100, 5)}, "5% to 90% of their training files were in memory"),
    ):
        (line,) = blocks.warnings(changed(every, 2, **changes))
        assert said in line


def test_runs_that_other_machines_disturbed_are_left_out_by_name() -> None:
    """By the CPU time that they lost, whatever they took: a tenth of what was wanted is allowed."""
    every = runs(7)
    for number, stolen_ns in ((3, 2 * 10**9 + 1), (5, 2 * 10**9)):
        host = HostUse("h", "d", 2, 1, 1, 18 * 10**9, stolen_ns, 1, 1, 1, None, None, 0, 0, 0)
        used = ResourceUse(1, 1, 1, 1, (host,), (), (), ())
        every[number] = Taken(every[number].repeat, dataclasses.replace(every[number].run, resources=used))
    found = stack_overhead(every)
    assert [point.runs for point in found.points] == [7, 6]
    (line,) = found.warnings
    assert line == (
        "Left out: 1 of 14 runs, from which other virtual machines took more than 10% of the CPU time: "
        f"{every[3].run.run_id}."
    )


def test_bundles_without_their_series_are_paired_by_order_and_series_by_their_file(tmp_path: Path) -> None:
    """The same runs by both; a bundle that its series names already counts once."""
    records = [(one.repeat[1], record_of(one)) for one in runs(6)]
    path = on_disk(tmp_path, records)
    bundles = [Bundle(tmp_path / r["configuration"]["name"] / r["run_id"]).path for _, r in records]
    by_series, by_bundle = blocks.taken([path, *bundles]), blocks.taken(bundles)
    assert [one.run for one in by_series] == [one.run for one in by_bundle]
    assert [one.repeat[1] for one in by_series] == [one.repeat[1] for one in by_bundle]
    assert stack_overhead(by_series).points == stack_overhead(by_bundle).points
    assert stack_overhead(by_series).warnings == ()
    assert stack_overhead(by_bundle).warnings == (
        "Some runs are of no series: they are paired by the order of their start.",
    )


def record_of(one: Taken) -> dict[str, Any]:
    """The record of a constructed run."""
    number = int(one.run.run_id[11:13]) * 60 + int(one.run.run_id[13:15])
    return record(number, one.experiment, {row.layer: row.ns / 1e9 for row in one.run.layers})


def test_tables_and_picture(tmp_path: Path) -> None:
    """Seconds first, the ratio with its interval; native's own layers in the first row; equal files for equal runs."""
    found = stack_overhead(runs(drift_s=0.2))
    _, barrier = table(found).to_dict("records")
    assert barrier["overhead, s"].startswith("28 (28 to 28)")
    assert barrier["YARN, s"].startswith("3 ")
    native, over = layer_table(found).to_dict("records")
    assert (native[""], native["spark, s"], native["launcher, s"]) == ("native, its own", "-", "0.4")
    assert over["launcher, s"] == "0.5 (0.5 to 0.5)"
    for suffix in pictures.SUFFIXES:
        for name in ("one", "two"):
            pictures.write(charts.stack_overhead(found), tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    assert "must not be added" in PUBLISHED
