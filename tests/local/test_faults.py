"""Faults against real processes: they stand still, read slowly, or wait, for exactly the logged time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dlobd.faults import hooks, injection_log, sigstop, slow_disk
from dlobd.process_id import ProcessId, identify
from dlobd.selftest import score
from tests.recorded import read_all

S = 1_000_000_000


def test_the_kernel_slows_the_disk_of_some_processes_only(tmp_path: Path) -> None:
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
        with slow_disk.slowed("hdfs/disk", [process], [tmp_path / "data"], rate, tmp_path):
            took_s = float(reader.communicate("\n", timeout=110)[0])
    (injected,) = injection_log.read(tmp_path)
    assert injected.asked_ns * rate == size * S, "without the process's own code"
    assert took_s > size / rate / 2
    assert not list(slow_disk.BLKIO.glob(f"dlobd-faults-{os.getpid()}"))


def identified(process: subprocess.Popen[Any]) -> list[ProcessId]:
    return [one] if (one := identify(process.pid)) else []


def test_a_stopped_process_stands_still_for_the_logged_time(tmp_path: Path) -> None:
    code = "import time\nwhile True:\n    print(time.monotonic_ns(), flush=True); time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            sigstop.stop("hdfs/read", partial(identified, process), 0.2, tmp_path, threading.Event())
            (injected,) = injection_log.read(tmp_path)
            ticks = []
            while not ticks or ticks[-1] < injected.end_ns:
                ticks.append(int(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGKILL)
    assert injected.ns >= injected.asked_ns == 200_000_000
    assert not [tick for tick in ticks if injected.start_ns < tick < injected.end_ns]


def test_two_stops_of_one_process_follow_each_other(tmp_path: Path) -> None:
    """Otherwise the end of the shorter stop would end both."""
    code = "import time\nprint(flush=True)\ntime.sleep(50)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()

            def frozen(seconds: float) -> None:
                sigstop.stop("hdfs/read", partial(identified, process), seconds, tmp_path, threading.Event())

            with ThreadPoolExecutor() as pool:
                list(pool.map(frozen, (0.1, 0.2, 0.1)))
        finally:
            process.send_signal(signal.SIGKILL)
    delays = injection_log.read(tmp_path)
    assert len(delays) == 3
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(delays))


def test_every_python_process_is_hooked_before_its_first_line(tmp_path: Path) -> None:
    """Spark passes PYTHONPATH on, so that sitecustomize hooks each module at its import."""
    (tmp_path / "plan.json").write_text(json.dumps({"launcher/rendezvous": [0.01]}))
    (tmp_path / "sitecustomize.py").write_text(hooks.sitecustomize(tmp_path))
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    code = "from tensorflowonspark import reservation\nprint(hasattr(reservation.Client.register, '__wrapped__'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=110, check=True
    )
    assert done.stdout == "True\n"


FED = """
import os, sys, time
from pathlib import Path
from dlobd import tracing
from dlobd.faults import hooks
role, where = sys.argv[1], Path(sys.argv[2])
hooks.install(str(where))
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
from tensorflowonspark import TFManager, TFNode
from dlobd.job.launchers.tfos import FeedTask, ReadAhead
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
    feed = ReadAhead(take, limit=40, ahead=20)
    taken = 0
    for _ in range(40):
        taken += len(feed.next_block())
        time.sleep(0.02)  # a step, during which blocks are taken ahead
    print(taken)
    tracing.flush()
"""


def test_a_slow_feed_holds_up_the_step_loop_despite_reading_ahead(tmp_path: Path) -> None:
    """Each delay at both ends of TensorFlowOnSpark's queue is injected, and the step loop waits during all of it.
    Otherwise the breakdown would be right to blame no layer."""
    plan = {"spark/slow-task": [0.05, 0.2], "feed/put": [0.05, 0.2], "feed/get": [0.05, 0.2]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, "-c", FED]
    with subprocess.Popen([*command, "feeder", str(tmp_path)]) as feeder:
        try:
            done = subprocess.run([*command, "trainer", str(tmp_path)], capture_output=True, text=True, timeout=110)
            assert done.stdout == "4000\n", done.stderr
            assert feeder.wait(timeout=110) == 0
        finally:
            feeder.kill()
    assert score.missing(plan, injection_log.read(tmp_path)) == []
    (trainer,) = read_all(tmp_path / "spans")
    waits = trainer.named("await block")
    for delay in injection_log.read(tmp_path):
        held = sum(max(0, min(wait.end_ns, delay.end_ns) - max(wait.start_ns, delay.start_ns)) for wait in waits)
        assert held > 0.9 * delay.ns, delay
