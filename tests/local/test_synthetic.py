"""Memory of a process that stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STAGE = """
import json, sys
from dlobd.experiment import files
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.run import staging
def rss():
    # not getrusage: its ru_maxrss counts what the parent had before this program was started
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
def stage(samples, top):
    asked = files.load("softmax-mnist", ["dataset=synthetic", "synthetic_shape=64x64x3", f"train_samples={samples}",
        "test_samples=100", "workers=1", "batch_size=100"])
    return staging.stage(asked, LocalDirectory(), top, lambda line: None).bytes
stage(1000, sys.argv[1] + "/small")
before = rss()
staged = stage(21000, sys.argv[1] + "/large")
print(json.dumps([staged, before, rss()]))
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_staging_takes_no_memory_that_grows_with_the_data_set(tmp_path: Path) -> None:
    """One file of 256 MB: the process that writes it grows by less than a quarter of that, after a small one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", STAGE, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    staged, before, after = json.loads(done.stdout)
    assert staged > 256 * 10**6
    assert after - before < 64 * 10**6
    assert after < 200 * 10**6
