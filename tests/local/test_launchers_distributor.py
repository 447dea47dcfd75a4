"""The distributor launcher in a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dlobd.evidence import recorder

WORKER = """
import sys
from dlobd import tracing
from dlobd.job.launchers import distributor
tracing.start(sys.argv[1], "python-worker")
distributor.install()
assert "pyspark" not in sys.modules
from pyspark import BarrierTaskContext
class Context(BarrierTaskContext):
    _conn_info, _secret = 1, "s"
    def __init__(self): pass
    __new__ = object.__new__
import pyspark.taskcontext
pyspark.taskcontext._load_from_socket = lambda *asked: ["h:1", "h:2"]
print(BarrierTaskContext.allGather(Context(), "h:1"))
tracing.flush()
"""


def test_the_all_gather_is_recorded_and_unchanged(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WORKER, str(tmp_path)], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout) == (0, "['h:1', 'h:2']\n"), done.stderr
    (file,) = tmp_path.iterdir()
    process = recorder.read(file)
    (span,) = process.named("all-gather addresses")
    assert (span.layer, span.attrs["address"]) == ("launcher", "h:1")
    assert '"rendezvous":"all-gather addresses"' in file.read_text()
    assert span.wait["cause_period_ns"] == 1_000_000_000
