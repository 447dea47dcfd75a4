"""Resources of layers and processes from samples, and time of lanes on a core, waiting and blocked."""

from __future__ import annotations

import json
import os
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.studies import script
from dlobd import spans as kinds
from dlobd.attribution.trace import Segment
from dlobd.compare.runset import without_series
from dlobd.evidence import resources
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.resources import Counter
from dlobd.evidence.topology import Placement, Topology
from dlobd.fields import plain
from dlobd.measures import core_waits
from dlobd.measures.core_waits import BETWEEN, BY_YARN, NO_SPAN, Carrier, Carriers
from dlobd.measures.resource_use import resource_use
from dlobd.schema import Process
from dlobd.tracing import clock, process_use
from dlobd.tracing.recorder import Recorder
from tests import records
from tests.recorded import read_all
from tests.samples import MB, S, evidence, host, process, sample, segment, segments_of


def use(lines: list[str], *stretches: tuple[str, float, float], **more: Any) -> dict[str, Any]:
    """Return `resources` of run.json; each stretch of the window belongs to a layer."""
    segments = segments_of([Segment(int(a * S), int(b * S), layer, None, "span", ()) for layer, a, b in stretches])
    evidence = SimpleNamespace(
        resources=resources.read(lines),
        window={"pid": 99},
        all_processes=[],
        topology=Topology(Placement.YARN_CLIENT),
        **more,
    )
    found = plain(resource_use(cast(Evidence, evidence), segments, (segments[0].start_ns, segments[-1].end_ns)))
    assert found is not None
    return found


# ---- counters


def test_counters_are_linear_and_may_begin_again() -> None:
    counter = Counter([(10, 100), (20, 200), (40, 220)])
    assert counter.values(np.array([0, 10, 15, 20, 30, 40, 99])).tolist() == [100, 100, 150, 200, 210, 220, 220]
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
    segments = segments_of([Segment(0, S, "yarn", None, "span", ())])
    evidence = SimpleNamespace(
        resources=resources.read(lines),
        window={"pid": 99},
        all_processes=recorded,
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
    window = segments_of([Segment(2 * S, 3 * S, "yarn", None, "span", ())])
    assert resource_use(cast(Evidence, before), window, (2 * S, 3 * S)) is None  # killed before the job began


MS = 1_000_000


def burn(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


# ---- what the kernel counts


def test_ended_threads_are_counted_and_only_the_main_one_carries_the_lane() -> None:
    """The kernel forgets a thread's waiting with the thread; of its time on a core the process's clock keeps all."""
    threads = process_use.Threads(os.getpid())
    before, cpu_ns = threads.read(), process_use.cpu_ns(os.getpid())
    begun = len(os.listdir("/proc/self/task"))
    seen, done = threading.Event(), threading.Event()

    def work() -> None:
        burn(0.05)
        seen.set()
        done.wait()

    worker = threading.Thread(target=work)
    worker.start()
    seen.wait()
    alive = threads.read()
    done.set()
    worker.join()
    unseen = threading.Thread(target=burn, args=(0.05,))
    unseen.start()
    unseen.join()
    while len(os.listdir("/proc/self/task")) > begun:
        time.sleep(0.001)  # Python lets go of a thread before the kernel does
    after, cpu_after_ns = threads.read(), process_use.cpu_ns(os.getpid())
    assert alive.threads_on_core_ns - before.threads_on_core_ns >= 50 * MS
    assert after.threads_on_core_ns >= alive.threads_on_core_ns  # of the one that has ended since
    assert (
        after.lane_on_core_ns - before.lane_on_core_ns < after.threads_on_core_ns - before.threads_on_core_ns - 49 * MS
    )
    ended_ns = (cpu_after_ns - cpu_ns) - (after.threads_on_core_ns - before.threads_on_core_ns)
    assert ended_ns >= 40 * MS  # the clocks are not read at one time


def test_javas_main_thread_and_those_of_its_tasks_carry_a_jvms_lane() -> None:
    """The kernel cuts a thread's name after 15 characters."""
    lane = ("Executor task l", "Thread-4", "Driver", "Reporter")
    assert all(process_use.LANE_OF_JVM.match(name) for name in lane)
    others = ("dispatcher-even", "Driver-heartbea", "Thread-4-x", "GC Thread#0", "VM Thread")
    assert not any(process_use.LANE_OF_JVM.match(name) for name in others)


def test_a_recorder_marks_its_own_process(tmp_path: Path) -> None:
    own = Recorder(tmp_path, "worker", threaded=False)
    with own.span(kinds.USER_CODE):
        burn(0.05)
    begun_ns = clock.monotonic_ns()
    own.close()
    (process,) = read_all(tmp_path)
    last = process.uses[-1]
    assert begun_ns <= last.at_ns <= clock.monotonic_ns()
    assert last.cpu_ns is not None
    assert 50 * MS <= last.main[0] <= last.threads[0]
    assert [use.at_ns for use in process.uses] == sorted(use.at_ns for use in process.uses)


# ---- what follows


@st.composite
def _lives(draw: st.DrawFn) -> tuple[list[str], list[int], list[tuple[int, int, str]]]:
    moments = draw(st.lists(st.sampled_from("rwb"), min_size=1, max_size=40))
    reads = (
        draw(st.sets(st.integers(0, len(moments)), min_size=2, max_size=6).map(sorted)) if len(moments) > 1 else [0, 1]
    )
    edges = [0, *draw(st.sets(st.integers(1, len(moments)), max_size=6).map(sorted)), len(moments)]
    layers = draw(st.lists(st.sampled_from(["spark", "yarn"]), min_size=len(edges), max_size=len(edges)))
    return moments, reads, [(a, b, layer) for a, b, layer in zip(edges, edges[1:], layers, strict=False) if a < b]


@given(_lives())
def test_the_truth_lies_between_the_bounds_and_the_parts_sum(
    life: tuple[list[str], list[int], list[tuple[int, int, str]]],
) -> None:
    moments, reads, stretches = life
    carrier = Carrier([[(at, moments[:at].count("r"), moments[:at].count("w")) for at in reads]])
    for layer in ("spark", "yarn"):
        mine = [(a, b) for a, b, of in stretches if of == layer]
        found = core_waits._split([(carrier, segments_of([Segment(a, b, layer, None, "span", ()) for a, b in mine]))])
        known = [moments[at] for a, b in mine for at in range(a, b) if reads[0] <= at < reads[-1]]
        for name, what in (("on_core", "r"), ("waiting", "w")):
            assert found[f"{name}_lo_ns"] <= known.count(what) <= found[f"{name}_hi_ns"]
            assert found[f"{name}_lo_ns"] <= found[f"{name}_ns"] <= found[f"{name}_hi_ns"]
        assert found["unknown_ns"] == found["ns"] - len(known)
        assert found["on_core_ns"] + found["waiting_ns"] + found["blocked_ns"] + found["unknown_ns"] == found["ns"]
        assert found["blocked_ns"] >= 0


def test_time_without_readings_is_unknown_with_its_reason(tmp_path: Path) -> None:
    who = Process("h", "worker", 0, 7, 0)
    lines = [
        {"k": "process", "host": "h", "role": "worker", "index": 0, "pid": 7, "start_ns": 0}
        | {"opened_ns": 10, "domain": "h/b/n", "forked": False},
        {"k": "u", "t": 100, "main": [40, 10], "threads": [60, 30], "cpu": 75}
        | {"read": 4096, "major": 2, "block_io": None, "pressure": [5, 6]},
    ]
    (tmp_path / "spans-7-10.jsonl").write_text("\n".join(map(json.dumps, lines)))
    known = evidence(processes=read_all(tmp_path))
    jvm = Process("h", "executor", 1, 0)
    pieces = [segment(0, 100, who), segment(100, 130, who), segment(130, 150, jvm)]
    pieces += [segment(150, 170, jvm, "yarn"), segment(170, 175, None, "unattributed")]
    found = plain(core_waits.core_waits(known, segments_of(pieces), (0, 175)))
    assert found["whole"]["on_core_ns"], found["whole"]["waiting_ns"] == (40, 10)
    assert (found["whole"]["blocked_ns"], found["whole"]["unknown_ns"]) == (50, 75)
    unknown = dict(found["unknown"])
    assert (unknown[BETWEEN], unknown[BY_YARN], unknown[NO_SPAN]) == (30, 20, 5)
    assert sum(unknown.values()) == 75
    (row,) = found["processes"]
    assert (row["on_core_ns"], row["waiting_ns"], row["ended_on_core_ns"], row["source"]) == (75, 30, 15, "own marks")
    assert (row["read_bytes"], row["major_faults"], row["block_io_ns"]) == (4096, 2, None)
    assert found["busy"] is None  # nobody sampled the machine
    assert core_waits.core_waits(evidence(), segments_of(pieces), (0, 175)) is None


# ---- a real machine


def test_a_comparison_excludes_a_busy_run_unless_it_is_allowed() -> None:
    names = "ns on_core_ns on_core_lo_ns on_core_hi_ns waiting_ns waiting_lo_ns waiting_hi_ns blocked_ns unknown_ns"
    part = dict.fromkeys(names.split(), 0)
    waits = {"whole": part, "layers": [], "unknown": [], "processes": [], "pressure": []}
    waits |= {"foreign_cpu_ns": 9, "held_up_ns": 9, "busy": True}
    busy = records.run(core_waits=waits)
    every = without_series("", [busy, records.run()])
    kept, (line,) = every.usable()
    assert kept.members == every.members[1:]
    assert line == f"run {busy.run_id} was delayed by other processes"
    assert every.usable(keep_busy=True) == (every, ())
    for keep, begin in ((False, "Left out: 1 of 2 runs"), (True, "Included despite disturbance: ")):
        (line,) = [line for line in script.checked(every, keep)[1] if "delayed by" in line]
        assert line.startswith(begin)
    assert not Carriers(evidence()).any
