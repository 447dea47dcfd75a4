"""Time of a lane's thread on a core, waiting and blocked: counts of the kernel, and their consequences."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from analysis.studies import script
from dlobd import spans as kinds
from dlobd.compare.runset import without_series
from dlobd.evidence import recorder
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.topology import Placement, Topology
from dlobd.fields import plain
from dlobd.measures import core_waits
from dlobd.measures.lane_threads import BETWEEN, BY_YARN, NO_SPAN, Carrier, Carriers
from dlobd.schema import Process, Segment, Span
from dlobd.tracing import clock, process_use
from dlobd.tracing.recorder import Recorder
from tests import records

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
    (process,) = recorder.read_all(tmp_path)
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
        found = core_waits._split([(Segment(a, b, layer, None, "span", ()), carrier) for a, b in mine])
        known = [moments[at] for a, b in mine for at in range(a, b) if reads[0] <= at < reads[-1]]
        for name, what in (("on_core", "r"), ("waiting", "w")):
            assert found[f"{name}_lo_ns"] <= known.count(what) <= found[f"{name}_hi_ns"]
            assert found[f"{name}_lo_ns"] <= found[f"{name}_ns"] <= found[f"{name}_hi_ns"]
        assert found["unknown_ns"] == found["ns"] - len(known)
        assert found["on_core_ns"] + found["waiting_ns"] + found["blocked_ns"] + found["unknown_ns"] == found["ns"]
        assert found["blocked_ns"] >= 0


def evidence(**parts: Any) -> Evidence:
    plain = {"resources": None, "processes": [], "topology": Topology(Placement.YARN_CLIENT)}
    return cast(Evidence, SimpleNamespace(window={"pid": 99}, **plain | parts))


def segment(start_ns: int, end_ns: int, who: Process | None, layer: str = "spark", lane: str = "driver") -> Segment:
    span = Span("1", None, kinds.SpanKind("x", layer), who, lane, start_ns, end_ns) if who else None
    return Segment(start_ns, end_ns, layer, span, "span", (lane,))


def test_time_without_readings_is_unknown_with_its_reason(tmp_path: Path) -> None:
    who = Process("h", "worker", 0, 7, 0)
    lines = [
        {"k": "process", "host": "h", "role": "worker", "index": 0, "pid": 7, "start_ns": 0}
        | {"opened_ns": 10, "domain": "h/b/n", "forked": False},
        {"k": "u", "t": 100, "main": [40, 10], "threads": [60, 30], "cpu": 75}
        | {"read": 4096, "major": 2, "block_io": None, "pressure": [5, 6]},
    ]
    (tmp_path / "spans-7-10.jsonl").write_text("\n".join(map(json.dumps, lines)))
    known = evidence(processes=recorder.read_all(tmp_path))
    jvm = Process("h", "executor", 1, 0)
    pieces = [segment(0, 100, who), segment(100, 130, who), segment(130, 150, jvm)]
    pieces += [segment(150, 170, jvm, "yarn"), segment(170, 175, None, "unattributed")]
    found = plain(core_waits.core_waits(known, pieces, (0, 175)))
    assert found["whole"]["on_core_ns"], found["whole"]["waiting_ns"] == (40, 10)
    assert (found["whole"]["blocked_ns"], found["whole"]["unknown_ns"]) == (50, 75)
    unknown = dict(found["unknown"])
    assert (unknown[BETWEEN], unknown[BY_YARN], unknown[NO_SPAN]) == (30, 20, 5)
    assert sum(unknown.values()) == 75
    (row,) = found["processes"]
    assert (row["on_core_ns"], row["waiting_ns"], row["ended_on_core_ns"], row["source"]) == (75, 30, 15, "own marks")
    assert (row["read_bytes"], row["major_faults"], row["block_io_ns"]) == (4096, 2, None)
    assert found["busy"] is None  # nobody sampled the machine
    assert core_waits.core_waits(evidence(), pieces, (0, 175)) is None


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
    for keep, begin in ((False, "Left out: 1 of 2 runs"), (True, "Kept although disturbed: ")):
        (line,) = [line for line in script.checked(every, keep)[1] if "delayed by" in line]
        assert line.startswith(begin)
    assert not Carriers(evidence()).any
