"""The self-test's own parts: an attribution that is wrong must fail it, and a delay must be what it is said to be."""

from __future__ import annotations

import inspect
import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from records import run as run_of
from rich.console import Console
from strategies import span

from dlobd.attribution.attribute import attribute
from dlobd.attribution.importers import recorder
from dlobd.hadoop.embedded.processes import ProcessId, identify
from dlobd.job.training import inputs as training_inputs
from dlobd.job.training import step as training_step
from dlobd.layers import LAYERS
from dlobd.schema import Trace
from dlobd.selftest import freezer, hooks, plans, score, slow_disk, totals, triggers, truth
from dlobd.selftest import report as report
from dlobd.selftest.points import POINTS
from dlobd.selftest.runs import SelftestRun
from dlobd.selftest.truth import Injection

S = 1_000_000_000
OK = run_of()


def found(*delays: tuple[str, int, int]) -> list[score.Recovery]:
    """Delays (point, start, end) against a run of spark [0, 10), yarn [10, 20), a hole, tensorflow [25, 40) s."""
    spans = (
        span("a", "spark", 0, 10 * S),
        span("b", "yarn", 10 * S, 20 * S),
        span("c", "tensorflow", 25 * S, 40 * S),
        span("w", "feed", 30 * S, 32 * S, waits_for=("nobody",)),
    )
    attribution = attribute(Trace(0, 40 * S, spans))
    return [score.blame(Injection(point, end - start, start, end), attribution, "run") for point, start, end in delays]


def test_each_delay_is_looked_up_in_the_attributed_wall() -> None:
    """Overlap by layer; holes, unexplained time and what lies outside of the window are nobody's success."""
    inside, across, hole, waits, outside = found(
        ("yarn/queue", 11 * S, 12 * S),
        ("yarn/localise", 19 * S, 21 * S),
        ("spark/slow-task", 21 * S, 22 * S),
        ("feed/get", 30 * S, 32 * S),
        ("tensorflow/step", 39 * S, 41 * S),
    )
    assert (inside.blamed, inside.ok) == ({"yarn": S}, True)
    assert (across.blamed, across.ok) == ({"yarn": S, "unattributed": S}, False)
    assert (hole.blamed, hole.ok) == ({"unattributed": S}, False)
    assert (waits.blamed, waits.ok) == ({"unexplained": 2 * S}, False)
    assert (outside.blamed, outside.ok) == ({"tensorflow": S, "unattributed": S}, False)


def test_the_target_has_two_sides() -> None:
    """95 % in the right layer is enough, unless 2 % are in one wrong layer."""
    start = 10 * S
    just = [Injection("spark/slow-task", S, start - S + extra, start + extra) for extra in (19_000_000, 21_000_000)]
    spans = (span("a", "spark", 0, start), span("b", "yarn", start, 20 * S))
    attribution = attribute(Trace(0, 20 * S, spans))
    assert [score.blame(one, attribution, "r").ok for one in just] == [True, False]


def test_the_regression_shows_a_share_that_is_lost() -> None:
    """Recovered is half of what was injected: slope 0.5, and no intercept."""
    half = [score.Recovery("r", Injection("hdfs/read", n * S, 0, n * S), {"hdfs": n * S // 2}) for n in (1, 2, 4)]
    line = score.lines(half)["hdfs"]
    assert line.slope == pytest.approx(0.5)
    assert line.intercept_ns == pytest.approx(0, abs=1)
    assert (line.delays, line.injected_ns, line.recovered_ns) == (3, 7 * S, 7 * S // 2)
    assert score.lines(half[:1])["hdfs"].slope is None


def test_a_blind_attribution_fails_the_self_test() -> None:
    """One that gives all time to one layer: the report says so, layer by layer."""
    wall_ns = len(POINTS) * S
    everything = attribute(Trace(0, wall_ns, (span("a", "tensorflow", 0, wall_ns),)))
    delays = [Injection(name, S, i * S, (i + 1) * S) for i, name in enumerate(POINTS)]
    ran = SelftestRun(
        plans.Plan("feed", 0, (), {"feed/put": [1.0]}),
        Path("run"),
        OK,
        everything,
        tuple(delays),
        tuple(score.blame(d, everything, "run") for d in delays),
        (),
    )
    whole = report.document([ran])
    assert not whole["ok"]
    assert {layer: list(row) for layer, row in whole["confusion"].items()} == {
        point.layer: ["tensorflow"] for point in POINTS.values()
    }
    console = Console(width=100, record=True, file=io.StringIO())
    report.tables([ran], console)
    right = sum(point.layer == "tensorflow" for point in POINTS.values())
    assert f"FAILED: {right} of {len(delays)} delays were found" in console.export_text()


def test_a_delay_that_was_not_made_fails_it_too() -> None:
    """Otherwise an injector that does nothing would pass."""
    assert score.missing({"feed/put": [0.1, 0.2], "hdfs/read": [1]}, [Injection("feed/put", 1, 0, 1)]) == [
        "feed/put",
        "hdfs/read",
    ]
    plan = plans.Plan("read", 0, (), {"hdfs/read": [1]})
    nothing = attribute(Trace(0, S, ()))
    assert not SelftestRun(plan, Path("run"), OK, nothing, (), (), ("hdfs/read",)).ok
    assert not report.document([SelftestRun(plan, Path("run"), OK, nothing, (), (), ())])["ok"], (
        "nothing was found at all"
    )


WAYS_AND_BLOCKS = {(plan.way, plan.block) for plan in plans.full()}
SLOW = Injection("hdfs/disk", 3 * S, 0, 40 * S)


def test_the_plans_pass_every_point_with_every_size() -> None:
    """quick: each point of dlobd's own job, in five runs; full: each with each size, and a control beside each run."""
    assert len(plans.quick()) == 5
    own = {name for name, point in POINTS.items() if point.layer == "user" or point.whole_run}
    assert {point for plan in plans.quick() for point in plan.delays} == POINTS.keys() - own
    sizes = {name: {s for plan in plans.full() for s in plan.delays.get(name, ()) if s} for name in POINTS}
    assert sizes == {name: set() if point.whole_run else set(plans.SIZES_S) for name, point in POINTS.items()}
    assert {point.layer for point in POINTS.values()} == LAYERS.keys()
    pairs = [[plan for plan in plans.full() if (plan.way, plan.block) == key] for key in WAYS_AND_BLOCKS]
    assert all(sorted(plan.control for plan in pair) == [False, True] for pair in pairs)
    assert all(len({(plan.settings, plan.own, tuple(plan.delays)) for plan in pair}) == 1 for pair in pairs)
    assert len({plan.name for plan in plans.full()}) == len(plans.full())


def test_a_slow_disk_is_a_way_of_its_own_where_there_can_be_one() -> None:
    """With its controls; it has no interval, so that what it took shows in the totals alone."""
    more = [plan for plan in plans.full(slow_disk=True) if plan not in plans.full()]
    assert [plan.control for plan in sorted(more, key=lambda plan: (plan.block, plan.control))] == [False, True] * 6
    assert totals.of_run("disk", 0, [SLOW], attribute(Trace(0, S, ()))).injected == {"hdfs": 3 * S}


def test_the_disk_of_a_directory_is_known_before_it_is_made(tmp_path: Path) -> None:
    """The cache is made by the first cluster, and whether its disk can be slowed is asked before."""
    assert (
        slow_disk.obstacle(tmp_path / "not" / "yet").partition("/")[0] == slow_disk.obstacle(tmp_path).partition("/")[0]
    )


def test_the_kernel_slows_a_disk_for_some_processes_alone(tmp_path: Path) -> None:
    """What one reads from the disk takes as long as the rate says, and what the kernel counted is written down."""
    if reason := slow_disk.obstacle(tmp_path):
        pytest.skip(f"no disk can be slowed: {reason}")
    size, rate = 2_000_000, 1_000_000
    (tmp_path / "data").write_bytes(os.urandom(size))
    code = """
import os, sys, time
input()
file = os.open(sys.argv[1], os.O_RDONLY)
began = time.monotonic()
while os.read(file, 1 << 16):
    pass
print(time.monotonic() - began)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        process = identify(reader.pid)
        assert process
        with slow_disk.slowed([process], [tmp_path / "data"], rate, tmp_path):
            took_s = float(reader.communicate("\n", timeout=50)[0])
    (injected,) = truth.read(tmp_path)
    assert injected.asked_ns * rate == size * S, "not what the process itself is made of"
    assert took_s > size / rate / 2
    assert not list(slow_disk.BLKIO.glob(f"dlobd-selftest-{os.getpid()}"))


def test_delays_from_outside_are_in_the_table_of_triggers() -> None:
    """A point by signal has a trigger, and nothing else has one."""
    assert [name for name, point in POINTS.items() if point.by == "signal"] == list(triggers.TRIGGERS)


def identified(process: subprocess.Popen[Any]) -> list[ProcessId]:
    """A process of this test's own, while there is one."""
    return [one] if (one := identify(process.pid)) else []


def test_a_frozen_process_stands_still_for_the_time_that_is_written_down(tmp_path: Path) -> None:
    """A real one that counts: it gets nowhere inside the interval, and goes on after it."""
    code = "import time\nwhile True:\n    print(time.monotonic_ns(), flush=True); time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            freezer.freeze("hdfs/read", partial(identified, process), 0.2, tmp_path, freezer.Stops())
            (injected,) = truth.read(tmp_path)
            ticks = []
            while not ticks or ticks[-1] < injected.end_ns:
                ticks.append(int(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGKILL)
    assert injected.ns >= injected.asked_ns == 200_000_000
    assert not [tick for tick in ticks if injected.start_ns < tick < injected.end_ns]


def test_two_delays_of_one_process_come_one_after_the_other(tmp_path: Path) -> None:
    """Else the end of the shorter one would end both, and the truth of the longer one would be none."""
    code = "import time\nprint(flush=True)\ntime.sleep(50)"
    stops = freezer.Stops()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()

            def frozen(seconds: float) -> None:
                freezer.freeze("hdfs/read", partial(identified, process), seconds, tmp_path, stops)

            with ThreadPoolExecutor() as pool:
                list(pool.map(frozen, (0.1, 0.2, 0.1)))
        finally:
            process.send_signal(signal.SIGKILL)
    delays = truth.read(tmp_path)
    assert len(delays) == 3
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(delays))


def test_nothing_to_freeze_is_no_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot be found within the deadline."""
    monkeypatch.setattr(freezer, "STOPPED_WITHIN_S", 0.05)
    freezer.freeze("hdfs/read", list, 0.01, tmp_path, freezer.Stops())
    assert truth.read(tmp_path) == []


def test_a_delay_is_made_once_whoever_passes(tmp_path: Path) -> None:
    """Two ranks decode block after block: each planned delay is made by one of them, and both decode all the same."""
    plan = {"tensorflow/decode": [0.01, 0.02]}
    for _rank in range(2):
        inputs = ModuleType("inputs")
        inputs.decode_block = len  # type: ignore[attr-defined]
        inputs.batches = lambda *args: None  # type: ignore[attr-defined]
        hooks._inputs(inputs, tmp_path, plan)
        assert [inputs.decode_block(bytes(n)) for n in range(30)] == list(range(30))
    assert [one.asked_ns for one in truth.read(tmp_path)] == [10_000_000, 20_000_000]
    assert all(one.ns >= one.asked_ns for one in truth.read(tmp_path))


def test_a_step_computes_for_longer_near_the_end(tmp_path: Path) -> None:
    """The delay lies where the real step computes, so that the step's own span, or its first part's, has it."""
    step = ModuleType("step")
    step._compute_function = lambda tf, job, *args: len  # type: ignore[attr-defined]
    hooks._step(step, tmp_path, {"tensorflow/step": [0.01]})
    compute = step._compute_function(None, SimpleNamespace(steps=hooks.STEP + 3), "workload", "exchange")
    delayed = []
    for k in range(hooks.STEP + 3):
        assert compute(bytes(k)) == k
        delayed += [k] * (len(truth.read(tmp_path)) - len(delayed))
    assert delayed == [3]


def test_the_functions_that_delays_are_put_around_are_there() -> None:
    """By these names, with the job as their second argument."""
    for function in (training_step._compute_function, training_inputs.batches):
        assert list(inspect.signature(function).parameters)[:2] == ["tf", "job"]
    assert callable(training_inputs.decode_block)


def test_every_python_below_is_prepared_before_its_first_line(tmp_path: Path) -> None:
    """sitecustomize by PYTHONPATH, as Spark hands it on: what a module does is delayed as soon as it is imported."""
    (tmp_path / "plan.json").write_text(json.dumps({"launcher/rendezvous": [0.01]}))
    (tmp_path / "sitecustomize.py").write_text(hooks.sitecustomize(tmp_path))
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    code = "from tensorflowonspark import reservation\nprint(reservation.Client.register.__qualname__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "_reservation.<locals>.register\n"


def test_an_unarmed_delay_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer never asks: the task goes on, and the delay is missing in the truth."""
    monkeypatch.setattr(hooks, "ARM_S", 0.02)
    began_s = time.monotonic()
    hooks._Delay(tmp_path, {"feed/put": [0.01]}, "feed/put").once(lambda: None)
    assert truth.read(tmp_path) == []
    assert time.monotonic() > began_s


def test_a_delay_counts_from_when_it_holds_up(tmp_path: Path) -> None:
    """Not from when that was seen, nor from before."""
    looks = iter([None, None, time.monotonic_ns()])
    hooks._Delay(tmp_path, {"feed/put": [0.01]}, "feed/put").once(lambda: next(looks))
    (injected,) = truth.read(tmp_path)
    assert injected.ns >= injected.asked_ns + 2 * round(hooks.LOOK_S * S)


def test_a_pipe_is_waited_for_since_it_was_empty(tmp_path: Path) -> None:
    """Twice: what was seen before one delay says nothing of the next."""
    reader, writer = os.pipe()
    empty = hooks._EmptyPipe(writer)
    found = []
    for _ in range(2):
        os.write(writer, b"x")
        assert empty() is None
        os.read(reader, 1)
        began_ns = time.monotonic_ns()
        while (since_ns := empty()) is None:
            time.sleep(0.001)
        assert began_ns <= since_ns <= time.monotonic_ns() - hooks.DRAINED_NS
        found.append(since_ns)
    assert found[0] < found[1]
    os.close(reader)
    os.close(writer)


FED = """
import os, sys, time
from pathlib import Path
from dlobd import tracing
from dlobd.selftest import hooks
role, where = sys.argv[1], Path(sys.argv[2])
hooks.install(str(where))
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFManager, TFNode
from dlobd.job.launchers.read_ahead import ReadAhead
from dlobd.job.launchers.tfos import FeedTask
if role == "feeder":
    manager = TFManager.start(b"key", ["input"])
    queue = manager.get_queue("input")
    (where / "address").write_text(manager.address)
    def put_all(blocks):
        for block in blocks:
            queue.put(block)
        queue.join()
    FeedTask(put_all, 0)(iter([bytes(100)] * 40))
else:
    while not (where / "address").exists():
        time.sleep(0.01)
    tracing.start(where / "spans", "chief")
    data = TFNode.DataFeed(TFManager.connect((where / "address").read_text(), b"key"))
    def take():
        return data.next_batch(1)[0]
    feed = ReadAhead(take, wanted=40, ahead=20)
    taken = 0
    for _ in range(40):
        taken += len(feed.next_block())
        time.sleep(0.02)  # a step, during which blocks are taken ahead
    print(taken)
    tracing.flush()
"""


def test_a_slow_feed_holds_the_step_loop_up_although_blocks_are_taken_ahead(tmp_path: Path) -> None:
    """At both ends of TensorFlowOnSpark's own queue each delay is made, and for as long as it lasts the step loop waits
    for the block: else the breakdown would be right not to blame anybody."""
    plan = {"spark/slow-task": [0.05, 0.2], "feed/put": [0.05, 0.2], "feed/get": [0.05, 0.2]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-c", FED]
    with subprocess.Popen([*command, "feeder", str(tmp_path)]) as feeder:
        try:
            done = subprocess.run([*command, "trainer", str(tmp_path)], capture_output=True, text=True, timeout=50)
            assert done.stdout == "4000\n", done.stderr
            assert feeder.wait(timeout=50) == 0
        finally:
            feeder.kill()
    assert score.missing(plan, truth.read(tmp_path)) == []
    (trainer,) = recorder.read_all(tmp_path / "spans")
    waits = trainer.named("await block")
    for delay in truth.read(tmp_path):
        held = sum(max(0, min(wait.end_ns, delay.end_ns) - max(wait.start_ns, delay.start_ns)) for wait in waits)
        assert held > 0.9 * delay.ns, delay


def test_another_part_of_the_right_layer_is_not_enough() -> None:
    """A delay at pack that comes back as wire is not recovered."""
    spans = (span("a", "channel", 0, 10 * S), span("b", "tensorflow", 10 * S, 20 * S))
    attribution = attribute(Trace(0, 20 * S, spans))
    (segment,) = [one for one in attribution.segments if one.layer == "channel"]
    assert segment.span is not None
    found = score.blame(Injection("channel/pack", S, S, 2 * S), attribution, "r")
    assert (found.blamed, found.ok) == ({score.ELSEWHERE: S}, False)
