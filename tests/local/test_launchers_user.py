"""Hooks for a person's own script: what they add, and that they change nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedProcess
from dlobd.job.user import hooks
from tests.recorded import read_all


def python(code: str, spans: Path) -> RecordedProcess:
    """Runs `code` with a recorder open; what it recorded."""
    head = f"from dlobd import tracing\ntracing.start({str(spans)!r}, 'driver')\nfrom dlobd.job.user import hooks\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code + "\ntracing.flush()\n"],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    (process,) = read_all(spans)
    return process


def test_a_feed_of_rows_is_timed_by_chunks(tmp_path: Path) -> None:
    process = python(
        """
rows = list(hooks.UserFeedTask(lambda rows: [list(rows)], 0)(iter(range(1000))))[0]
assert rows == list(range(1000))
""",
        tmp_path,
    )
    puts = process.named("put")
    assert sum(span.attrs["items"] for span in puts) == 1000
    assert 1000 / hooks.CHUNK <= len(puts) < 100
    assert process.instant("feed exhausted").attrs["items"] == 1000  # type: ignore[union-attr]


def test_a_slow_source_is_not_read_ahead() -> None:
    read: list[int] = []

    def slow() -> Iterator[int]:
        for n in range(3):
            read.append(n)
            hooks.time.sleep(0.02)
            yield n

    fed = hooks.UserFeedTask(list, 0)._timed(slow())
    assert next(fed) == 0
    assert read == [0]


def test_a_main_function_is_a_rank(tmp_path: Path) -> None:
    """Role, index and whether it is the Python worker itself; its result and arguments are untouched."""
    process = python(
        """
from types import SimpleNamespace
import os
os.environ["http_proxy"] = "http://127.0.0.1:9"
ctx = SimpleNamespace(job_name="chief", task_index=0, cluster_spec={"chief": ["10.0.0.1:5"], "worker": ["10.0.0.2:5"]})
inside = hooks.UserMain(lambda args, ctx: (args, ctx.job_name))
assert hooks.UserStartTask(lambda ids: inside("a", ctx))([0]) == ("a", "chief")
hooks._StartedBy.pid = 0
assert inside("a", ctx) == ("a", "chief")
assert os.environ["no_grpc_proxy"] == "10.0.0.1,10.0.0.2"
parallel = SimpleNamespace(job_name="", worker_num=2, cluster_spec={})
assert hooks.UserMain(lambda args, ctx: 7)("a", parallel) == 7
""",
        tmp_path,
    )
    found = [(s.attrs["role"], s.attrs["index"], s.attrs["in_task"]) for s in process.named(kinds.USER_CODE)]
    assert found == [("chief", 0, True), ("chief", 0, False), ("worker", 2, True)]
    assert process.process.role == "chief"  # a process of its own says so; a Python worker does not


def test_what_travels_pickles_by_reference() -> None:
    assert b"dlobd.job.user.hooks" in pickle.dumps(hooks.UserMain(len))  # type: ignore[arg-type]
    assert b"dlobd.job.user.hooks" in pickle.dumps(hooks.ShutdownTask(os.path.join))  # type: ignore[arg-type]


def test_the_sleep_of_a_shutdown_has_a_name(tmp_path: Path) -> None:
    """grace_secs is slept inside a function that travelled by value; its module's `time` is not the one it uses."""
    process = python(
        """
import time
from pyspark import cloudpickle
def stop(items):
    time.sleep(0.01)
    return items
task = cloudpickle.loads(cloudpickle.dumps(hooks.ShutdownTask(stop)))
assert task([1]) == [1]
assert task._inner.__globals__["time"] is time
""",
        tmp_path,
    )
    (sleep,) = process.named("sleep")
    assert sleep.wait["waits_for"] == ("@trainer",)
    assert sleep.wait["cause"] == "TFCluster.shutdown(grace_secs) (sleep 0.01 s)"
    assert sleep.parent == process.named("shutdown task")[0].id


def test_the_hooks_import_nothing_themselves(tmp_path: Path) -> None:
    """A script that needs neither PySpark nor TensorFlowOnSpark does not pay for them; one that does gets its own."""
    process = python(
        """
import sys
hooks.prepare_driver("tfos")
assert not {"pyspark", "tensorflow", "tensorflowonspark"} & set(sys.modules)
import json.tool
from tensorflowonspark import TFCluster, TFNode
assert "tensorflow" not in sys.modules
assert TFCluster.run.__name__ == "run" and TFCluster.TFCluster.train.__wrapped__
import tensorflowonspark
assert type(tensorflowonspark.__loader__).__module__ != "dlobd.job.launchers.imports"
""",
        tmp_path,
    )
    names = [span.name for span in process.spans]
    assert "import tensorflowonspark" in names
    assert "import pyspark" in names


@pytest.mark.parametrize("launcher", ["tfos", "tfos-stock"])
def test_a_python_worker_is_as_without_hooks_until_it_imports_tensorflowonspark(launcher: str, tmp_path: Path) -> None:
    """TensorFlowOnSpark configures logging, which a function of plain PySpark may do itself."""
    (tmp_path / "tensorflow.py").write_text("")  # as published, it imports TensorFlow
    process = python(
        f"""
import logging, sys
sys.path.insert(0, {str(tmp_path)!r})
hooks.prepare_daemon({launcher!r})
from pyspark.daemon import manager
assert logging.root.handlers == []
assert not {{"pyspark.worker", "tensorflow", "tensorflowonspark", "pkg_resources"}} & set(sys.modules)
from tensorflowonspark import TFNode, TFSparkNode
assert TFNode.DataFeed.next_batch.__wrapped__
assert hasattr(TFSparkNode.multiprocessing, "Pool") == ({launcher!r} == "tfos-stock")
assert len(logging.root.handlers) == 1
""",
        tmp_path / "spans",
    )
    assert "import tensorflowonspark" in [span.name for span in process.spans]


def test_py4j_commands_have_names() -> None:
    assert hooks._method("c\no12\ncollectAndServe\ne\n") == "collectAndServe"
    assert hooks._method("i\norg.apache.spark.SparkConf\nbtrue\ne\n") == "new SparkConf"
    assert hooks._method("r\nu\nPythonRDD\nrj\ne\n") == "look up"


def test_calls_that_are_too_short_for_a_span_are_counted(tmp_path: Path) -> None:
    """A long call into the JVM is a span; short ones are a number, but not waits for streams; inside a recorded wait
    neither is."""
    process = python(
        f"""
import time, pyspark, pyspark.sql
from py4j.java_gateway import GatewayClient
GatewayClient.send_command = lambda self, command, seconds: time.sleep(seconds)
hooks._record_pyspark(pyspark)
client = object.__new__(GatewayClient)
for _ in range(3):
    client.send_command("c\\no12\\nsize\\ne\\n", 0)
client.send_command("c\\no12\\ncollectAndServe\\ne\\n", {2 * hooks.LONG_CALL_NS / 1e9})
client.send_command("c\\no12\\nawaitTermination\\ni25000\\ne\\n", 0)
hooks._Wait.active = True
client.send_command("c\\no12\\nsize\\ne\\n", 0)
hooks.LONG_CALL_NS = 10**12  # however busy the machine is
hooks._Wait.active = False
client.send_command("c\\no12\\nsize\\ne\\n", 0)
""",
        tmp_path,
    )
    names = [span.name for span in process.spans]
    assert {"JVM: collectAndServe", "wait for stream: awaitTermination"} <= {*names}
    assert process.cost.left_out + names.count("JVM: size") == 4
    assert process.cost.left_out >= 1


def test_settings_in_the_script_win_over_those_of_dlobd(tmp_path: Path) -> None:
    """Spark itself reads them: a deprecated name, a value of the user's line, and a Python that is not dlobd's."""
    python(
        """
import os, sys
ours = "spark.executor.maxNumFailures=1,spark.executor.memoryOverhead=1280m"
given = [*ours.split(","), f"spark.dlobd.replaceable={ours}", "spark.ui.enabled=false", "spark.task.maxFailures=3"]
given.append("spark.executor.extraJavaOptions=-Dours=1")
os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f"--conf {one}" for one in given) + " pyspark-shell"
os.environ["PYSPARK_PYTHON"] = "dlobds"
hooks.prepare_driver("tfos")
os.environ["PYSPARK_PYTHON"] = "./users/python"
from pyspark import SparkConf
from pyspark.context import SparkContext
conf = SparkConf().setMaster("local[1]").setAppName("a").set("spark.yarn.executor.memoryOverhead", "1600")
conf.set("spark.executor.extraJavaOptions", "-Dusers=1")
try:
    SparkContext(conf=conf)
except RuntimeError as error:
    assert "PYSPARK_PYTHON=./users/python in the script is not supported" in str(error)
os.environ["PYSPARK_PYTHON"] = sys.executable
sc = SparkContext(conf=conf)
keys = ("spark.executor.memoryOverhead", "spark.executor.maxNumFailures", "spark.task.maxFailures")
found = [sc.getConf().get(key) for key in keys]
options = sc.getConf().get("spark.executor.extraJavaOptions")
sc.stop()
assert found == ["1600", "1", "3"], found
assert options.endswith("-Dours=1 -Dusers=1"), options
""",
        tmp_path,
    )
