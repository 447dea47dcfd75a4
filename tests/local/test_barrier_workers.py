"""The hooks of a Python worker in a barrier task, with a package that has the parts of XGBoost that they use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dlobd import spans as kinds
from dlobd.evidence import own_steps
from tests.recorded import read_all

WORKER = """
import sys
from dlobd import tracing
from dlobd.job.launchers.imports import on_import
from dlobd.job.user import python_worker, xgboost_spark
tracing.start(sys.argv[1], "python-worker")
on_import("pyspark.taskcontext", None, python_worker.record_barriers)
xgboost_spark.install()
import pyspark.taskcontext
from pyspark import BarrierTaskContext, TaskContext
class Task(BarrierTaskContext):
    _localProperties, _stageId, _conn_info, _secret = {"addresses": "h:1,h:2"}, 3, 1, "s"
    __new__, __init__ = object.__new__, lambda self: None
pyspark.taskcontext._load_from_socket = lambda *asked: ["a", "b"]
for stage in (3, 3, 4):
    Task._stageId = stage
    assert BarrierTaskContext.allGather(Task(), "a") == ["a", "b"]
import xgboost.spark.data
with xgboost.collective.CommunicatorContext(dmlc_task_id="0"): pass  # on the driver
TaskContext._taskContext = Task()
with xgboost.collective.CommunicatorContext(dmlc_task_id="1", dmlc_tracker_port=9091):
    assert xgboost.spark.data.create_dmatrix_from_partitions(iterator=iter("ab"), rate=2) == (["a", "b"], 2)
    for number in range(5):
        assert xgboost.core.Booster().update(number) == number
xgboost.core.Booster().update(7)
tracing.flush()
"""

XGBOOST = {
    "__init__": "from . import collective, core",
    "collective": """
class CommunicatorContext:
    def __init__(self, **args): self.args = args
    def __enter__(self): return self.args
    def __exit__(self, *error): pass
""",
    "core": """
class Booster:
    def update(self, number): return number
    def eval_set(self): pass
""",
    "spark/__init__": "",
    "spark/data": "def create_dmatrix_from_partitions(iterator, rate): return list(iterator), rate",
}


def test_a_barrier_task_of_xgboost_is_a_rank_with_rounds(tmp_path: Path) -> None:
    for name, text in XGBOOST.items():
        path = tmp_path / "lib" / "xgboost" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'lib')!r})\n{WORKER}"]
    done = subprocess.run([*command, str(tmp_path / "spans")], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    (process,) = read_all(tmp_path / "spans")
    waits = process.named(kinds.BARRIER)
    assert len({span.rendezvous for span in waits}) == 1
    assert len({span.call for span in waits}) == 3  # each barrier is a collective of its own
    process.spans = own_steps.numbered(process.spans)
    (main,) = process.spans.mains
    assert (main.attrs["role"], main.attrs["index"]) == ("worker", 0)
    inside = process.spans.where(process.spans.parent == main.id)
    assert [span.name for span in inside] == ["join ranks", "build DMatrix", "first step", *["step"] * 4]
    assert own_steps.count(inside) == 5
    assert len(process.named(kinds.READ_ROWS)) == 3
    assert process.instant(kinds.STEPS_UNKNOWN) is None
