"""From samples of a machine to what each layer and each process used."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlobd.evidence import resources
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import Counter
from dlobd.evidence.topology import Placement, Topology
from dlobd.fields import plain
from dlobd.measures.resource_use import resource_use
from dlobd.schema import Process, Segment
from tests.samples import MB, S, host, process, sample


def use(lines: list[str], *stretches: tuple[str, float, float], **more: Any) -> dict[str, Any]:
    """Return `resources` of run.json; each stretch of the window belongs to a layer."""
    segments = [Segment(int(a * S), int(b * S), layer, None, "span", ()) for layer, a, b in stretches]
    evidence = SimpleNamespace(
        resources=resources.read(lines),
        window={"pid": 99},
        processes=[],
        topology=Topology(Placement.YARN_CLIENT),
        **more,
    )
    found = plain(resource_use(cast(Evidence, evidence), segments, (segments[0].start_ns, segments[-1].end_ns)))
    assert found is not None
    return found


# ---- counters


def test_counters_are_linear_and_may_begin_again() -> None:
    counter = Counter([(10, 100), (20, 200), (40, 220)])
    assert [counter.at(t) for t in (0, 10, 15, 20, 30, 40, 99)] == [100, 100, 150, 200, 210, 220, 220]
    assert counter.between(15, 30) == 60
    assert Counter([]).between(0, 10) == 0
    counter = Counter([(0, 1000), (10, 1500), (20, 30), (30, 50)])
    assert counter.between(0, 30) == 500 + 30 + 20


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**12)), min_size=2, max_size=20),
    st.lists(st.integers(0, 10**10), min_size=2, max_size=20),
)
def test_stretches_that_meet_sum_exactly(steps: list[tuple[int, int]], cuts: list[int]) -> None:
    readings, at_ns, value = [], 0, 0
    for step_ns, growth in steps:
        at_ns, value = at_ns + step_ns, value + growth
        readings.append((at_ns, value))
    counter, cuts = Counter(readings), sorted(cuts)
    parts = [counter.between(a, b) for a, b in pairwise(cuts)]
    assert sum(parts) == counter.between(cuts[0], cuts[-1])
    assert min(parts) >= 0


# ---- layers


def test_layers_share_what_the_machine_used() -> None:
    lines = [
        host(),
        sample(0, 50, disk=[0, 10 * MB], net={"lo": [0, 0], "eth0": [5, 7]}),
        sample(2, 52, disk=[4 * MB, 10 * MB], net={"lo": [8 * MB, 8 * MB], "eth0": [5, 7]}),
        sample(4, 56, disk=[4 * MB, 30 * MB], net={"lo": [8 * MB, 8 * MB], "eth0": [105, 7]}),
    ]
    found = use(lines, ("tensorflow", 1, 2.5), ("yarn", 2.5, 3), ("tensorflow", 3, 4))
    layers = {row["layer"]: row for row in found["layers"]}
    assert list(layers) == ["yarn", "tensorflow"]  # in the order of every report
    assert layers["tensorflow"]["cpu_busy_ns"] == (1 + 1 + 2) * S
    assert layers["tensorflow"]["cpu_busy_share"] == pytest.approx(4 / (2.5 * 2))
    assert layers["yarn"]["cpu_busy_ns"] == 1 * S
    assert layers["tensorflow"]["disk_read_bytes"] == 2 * MB
    assert layers["tensorflow"]["disk_written_bytes"] == 15 * MB
    assert layers["tensorflow"]["loopback_bytes"] == 4 * MB  # each byte once
    assert layers["tensorflow"]["net_received_bytes"] == 75
    machine = found["hosts"][0]
    for name in ("cpu_busy_ns", "disk_read_bytes", "disk_written_bytes", "loopback_bytes", "net_received_bytes"):
        assert sum(row[name] for row in found["layers"]) == machine[name], name


def test_time_without_samples_is_not_counted_as_idle() -> None:
    lines = [host(), sample(0, 0), sample(2, 4), '{"k":"sample","t":3000']
    found = use(lines, ("yarn", 1, 3), ("spark", 3, 4))
    yarn, spark = found["layers"]
    assert (yarn["sampled_ns"], yarn["cpu_busy_share"]) == (1 * S, 1.0)
    assert (spark["sampled_ns"], spark["cpu_busy_share"], spark["cpu_busy_ns"]) == (0, None, None)
    assert spark["net_received_bytes"] is None
    assert found["hosts"][0]["sampled_ns"] == 1 * S


def test_gaps_and_missing_disks_are_stated() -> None:
    found = use([host(), sample(0, 0), sample(1, 1), sample(7, 4), sample(8, 5)], ("yarn", 2, 4))
    assert found["longest_gap_ns"] == 6 * S
    assert found["layers"][0]["cpu_busy_ns"] == 1 * S
    assert found["samples"] == 0
    found = use([host(), sample(0, 0), sample(1, 1)], ("yarn", 0, 1))
    assert found["hosts"][0]["disk_read_bytes"] is None
    assert found["layers"][0]["disk_written_bytes"] is None
    assert found["layers"][0]["loopback_bytes"] is None


# ---- processes


def test_a_process_counts_from_its_start_to_its_last_sample() -> None:
    lines = [
        host(),
        process(2, 1),
        process(10, 2, start_s=1.5),
        process(11, 2, start_s=-5),
        sample(1, 0, {2: (30, 0)}),
        sample(2, 0, {2: (31, 0), 10: (0.4, 0, 7 * MB, 100, None), 11: (3, 0)}),
        sample(3, 0, {2: (31, 0), 10: (1.0, 0, 5 * MB, 300, None)}),
        sample(4, 0, {2: (32, 0)}),
    ]
    found = use(lines, ("yarn", 1, 4))
    rows = {row["role"]: row for row in found["processes"]}
    assert (rows["datanode"]["index"], rows["datanode"]["cpu_ns"]) == (1, 2 * S)
    other = rows["other"]
    assert (other["count"], other["pid"]) == (2, None)  # pids 10 and 11 are of one name
    assert other["rss_peak_bytes"] == 7 * MB
    assert other["read_bytes"] == 300
    assert other["write_bytes"] == 0  # the kernel said it of one of them
    # pid 11 was there before the window: it used 3 s in the 7 s since its start, 6 of them before the window
    assert other["cpu_ns"] == 1 * S + 3 * S - 3 * S * 6 // 7
    assert found["hosts"][0]["processes_cpu_ns"] == sum(row["cpu_ns"] for row in found["processes"])


def test_cpu_time_between_samples_is_known_from_the_parent() -> None:
    lines = [
        host(),
        process(2, 1),
        process(10, 2, start_s=1),
        sample(0, 0, {2: (0, 5)}),
        sample(1, 0, {2: (0, 5), 10: (0.5, 0)}),
        sample(2, 0, {2: (0, 7.25)}),  # child 10 ended with 0.75 s, an unseen one with 1.5 s
    ]
    assert use(lines, ("yarn", 0, 2))["hosts"][0]["unseen_cpu_ns"] == 1_750_000_000


def test_sampled_cpu_time_is_not_counted_again_by_ancestors() -> None:
    """A child, its parent and theirs may end within one period: the grandparent reaps what was seen of both."""
    lines = [
        host(),
        process(2, 1),
        process(10, 2),
        process(11, 10),
        sample(0, 0, {2: (0, 0), 10: (0, 0), 11: (0, 0)}),
        sample(1, 0, {2: (0, 0), 10: (1, 0), 11: (20, 0)}),
        sample(2, 0, {2: (0, 21.5)}),
    ]
    assert use(lines, ("yarn", 0, 2))["hosts"][0]["unseen_cpu_ns"] == 500_000_000
    # where a sample saw that the parent had reaped its child, that counts once as well
    lines[-1:] = [sample(2, 0, {2: (0, 0), 10: (1, 20.25)}), sample(3, 0, {2: (0, 21.5)})]
    assert use(lines, ("yarn", 0, 3))["hosts"][0]["unseen_cpu_ns"] == 500_000_000


def test_roles_come_from_dlobd_the_submission_the_record_and_the_program() -> None:
    launcher = {"name": "java", "main_class": "org.apache.spark.deploy.yarn.ExecutorLauncher"}
    java = {"name": "java", "main_class": "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"}
    lines = [
        host(),
        process(1, 0),
        process(3, 1),
        process(99, 1),
        process(20, 2, executor="2", **java),
        process(21, 20),
        process(22, 2, name="bash"),
        process(22, 2, **launcher),
        process(23, 2, name="bash"),
        sample(0, 0, dict.fromkeys((1, 3, 99, 20, 21, 22, 23), (1, 0))),
        sample(1, 0, dict.fromkeys((1, 3, 99, 20, 21, 22, 23), (1, 0))),
    ]
    recorded = [
        SimpleNamespace(domain="d", process=Process("h", "chief", 0, 21)),
        SimpleNamespace(domain="elsewhere", process=Process("h", "worker", 1, 23)),
    ]
    segments = [Segment(0, S, "yarn", None, "span", ())]
    evidence = SimpleNamespace(
        resources=resources.read(lines),
        window={"pid": 99},
        processes=recorded,
        topology=Topology(Placement.YARN_CLIENT),
    )
    found = plain(resource_use(cast(Evidence, evidence), segments, (0, S)))
    assert {(row["role"], row["index"], row["pid"]) for row in found["processes"]} == {
        ("dlobd", 0, 1),
        ("sampler", 0, 3),
        ("driver", 0, 99),
        ("executor", 2, 20),
        ("chief", 0, 21),
        ("application-master", 0, 22),
        ("other", 0, None),
    }


def test_a_pid_given_again_is_another_process() -> None:
    lines = [
        host(),
        process(10, 2, start_s=0),
        sample(1, 0, {10: (5, 0)}),
        process(10, 2, start_s=1.5),
        sample(2, 0, {10: (1, 0)}),
    ]
    assert use(lines, ("yarn", 0, 2))["processes"][0]["cpu_ns"] == 6 * S


# ---- GPUs


def test_gpus_have_their_own_share() -> None:
    gpus = [{"name": "g", "memory_bytes": 80 * MB}]
    lines = [host(gpus=gpus), sample(0, 0, gpu=[[0, 5]]), sample(1, 0, gpu=[[50, 30]]), sample(2, 0, gpu=[[100, 20]])]
    found = use(lines, ("yarn", 0, 0.5), ("tensorflow", 0.5, 2))
    assert [row["gpu_busy_share"] for row in found["layers"]] == [pytest.approx(0.5), pytest.approx(1.25 / 1.5)]
    assert found["gpus"][0] | {"name": "g"} == {
        "index": 0,
        "name": "g",
        "memory_bytes": 80 * MB,
        "busy_share": 0.75,
        "memory_used_peak_bytes": 30,
    }
    silent = [host(gpus=gpus), sample(0, 0, gpu=[None]), sample(1, 0, gpu=[None])]
    assert use(silent, ("yarn", 0, 1))["gpus"][0]["busy_share"] is None
    assert use([host(), sample(0, 0), sample(1, 0)], ("yarn", 0, 1))["layers"][0]["gpu_busy_share"] is None


# ---- runs without samples


def test_a_run_that_was_not_sampled_has_nothing(tmp_path: Path) -> None:
    assert Evidence(tmp_path).resources is None
    assert resources.read([host()]) is None
    assert resources.read(["", "{"]) is None
    before = SimpleNamespace(resources=resources.read([host(), sample(0, 0), sample(1, 1)]))
    window = [Segment(2 * S, 3 * S, "yarn", None, "span", ())]
    assert resource_use(cast(Evidence, before), window, (2 * S, 3 * S)) is None  # killed before the job began
