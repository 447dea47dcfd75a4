"""TensorFlowOnSpark as published: what is added only records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dlobd.evidence import recorder
from dlobd.job.launchers.tfos import TfosLauncher
from dlobd.job.launchers.tfos_stock import TfosStockLauncher

CHILD = """
import sys
from dlobd import tracing
from dlobd.job.launchers import tfos_stock
tracing.start(sys.argv[1], "python-worker")
tfos_stock.install()
assert not {"pkg_resources", "tensorflow"} & set(sys.modules)
before = len(sys.meta_path)
import tensorflow
assert tensorflow.answer == 42
assert len(sys.meta_path) == before - 1, "the finder is gone once it was used"
import tensorflow
tracing.flush()
"""


def test_the_import_of_tensorflow_is_recorded_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("answer = 42\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    spans = tmp_path / "spans"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(spans)], env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    (file,) = spans.iterdir()
    process = recorder.read(file)
    assert [(s.layer, s.name, s.truncated) for s in process.spans] == [("tensorflow", "import tensorflow", False)]


WATCHED = """
import glob, multiprocessing, os, signal, sys, time
from dlobd import tracing
from dlobd.job.launchers.tfos_stock import WatchedStartTask
tracing.start(sys.argv[1], "python-worker")
def start(_):
    global manager, killed, left
    manager = multiprocessing.Manager()
    killed = multiprocessing.Process(target=time.sleep, args=(60,))
    left = multiprocessing.Process(target=sys.exit, args=(3,))
    killed.start(), left.start()
    return killed.pid
pid = WatchedStartTask(start)(None)
os.kill(pid, signal.SIGKILL)
deadline = time.monotonic() + 20
while "trainer died" not in "".join(open(path).read() for path in glob.glob(sys.argv[1] + "/*")):
    assert time.monotonic() < deadline
    time.sleep(0.05)
killed.join(), left.join()
assert (killed.exitcode, left.exitcode) == (-9, 3), "the exit status is still there for whoever wants it"
manager.shutdown()
print(pid)
"""


def test_a_killed_trainer_is_recorded_and_nobody_is_told(tmp_path: Path) -> None:
    """Its parent learns the same as without us; an exit code is the trainer's own to explain; a manager is none."""
    done = subprocess.run([sys.executable, "-c", WATCHED, str(tmp_path)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    (died,) = [line for line in lines if line["k"] == "i"]
    cause = f"trainer process {done.stdout.strip()} died: killed by signal 9"
    assert (died["n"], died["a"]) == ("trainer died", {"cause": cause, "pid": int(done.stdout), "code": -9})


def test_only_the_worker_daemon_and_room_for_tensorflow_differ() -> None:
    stock, ours = TfosStockLauncher().spark_conf(), TfosLauncher().spark_conf()
    assert {key for key in stock if stock[key] != ours.get(key)} == {
        "spark.python.daemon.module",
        "spark.driver.memoryOverhead",
    }
    assert ours.keys() <= stock.keys()
