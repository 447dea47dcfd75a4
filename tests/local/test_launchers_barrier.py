"""A trainer whose task is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.recorded import read_all


def test_a_trainer_does_not_outlive_its_killed_task(tmp_path: Path) -> None:
    code = """
import os, sys, time
from dlobd.job.launchers import trainer_process
process = trainer_process.start(os.environ)
print(process.pid, flush=True)
time.sleep(100)
"""
    environment = {**os.environ, "LOG_DIRS": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as task:
        trainer = psutil.Process(int(task.stdout.readline()))
        deadline = time.monotonic() + 30
        # its recorder is opened after it asked the kernel; an empty file has no process yet
        while not any(process.spans for process in read_all(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        task.send_signal(signal.SIGKILL)
    psutil.wait_procs([trainer], timeout=20)
    assert not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE
    (process,) = read_all(tmp_path)
    assert process.spans[0].layer == "tensorflow"
    assert process.spans[0].truncated or process.named("await place")[0].truncated
