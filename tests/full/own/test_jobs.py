"""Scripts in the style of TensorFlowOnSpark's examples, each in one of its modes, unchanged."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.evidence.evidence import Evidence
from dlobd.timeline.assemble import assemble
from tests.cluster.conftest import until
from tests.cluster.deletions import unnoticed
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

FOREIGN = Path(__file__).parents[2] / "foreign"

JOBS = [
    ("mwms.py", (), ("--steps", "50"), {("chief", 0), ("worker", 0)}),
    ("mwms.py", ("deploy_mode=cluster",), ("--steps", "50"), {("chief", 0), ("worker", 0)}),
    ("mwms.py", ("launcher=tfos-stock",), ("--steps", "50"), {("chief", 0), ("worker", 0)}),
    ("mwms.py", ("scheduler=standalone",), ("--steps", "50"), {("chief", 0), ("worker", 0)}),
    ("feed.py", (), ("--steps", "50"), {("chief", 0), ("worker", 0)}),
    ("feed.py", ("launcher=tfos-stock",), ("--steps", "50"), {("chief", 0), ("worker", 0)}),
    ("parameter_server.py", ("workers=3",), (), {("worker", 0), ("worker", 1)}),
    ("evaluator.py", ("workers=3",), (), {("chief", 0), ("worker", 0)}),
    ("evaluator.py", ("workers=3",), ("--ends",), {("chief", 0), ("worker", 0)}),
    ("evaluator.py", ("workers=3", "launcher=tfos-stock"), (), {("chief", 0), ("worker", 0)}),
    ("loaders.py", (), (), {("chief", 0), ("worker", 0)}),
    ("loaders.py", ("launcher=tfos-stock",), (), {("chief", 0), ("worker", 0)}),
    ("mains.py", (), (), {("chief", 0), ("worker", 0)}),
    ("mains.py", ("launcher=tfos-stock",), (), {("chief", 0), ("worker", 0)}),
]

STEPS = {"mwms.py": 51, "feed.py": 50, "mains.py": 112}
"""Steps that each rank counts itself. The other scripts train without a tf.function: their steps are unknown."""


@pytest.mark.parametrize(("script", "settings", "arguments", "ranks"), JOBS)
def test_a_mode_of_tensorflowonspark(dlobd, tmp_path, script, settings, arguments, ranks) -> None:
    """It ends well, 95 % is explained, the person's main function is TensorFlow's time, and nothing that it left could
    be lacking without a word."""
    sets = [word for setting in settings for word in ("--set", setting)]
    job = str(FOREIGN / script)
    ended = dlobd("run", "--job", job, *sets, "--out", str(dlobd.out), "--", *arguments, within_s=390)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert layers["tensorflow"] > layers["user"]
    assert layers["launcher"] > 0
    if script == "feed.py":
        assert layers["feed"] > 0
    found = {(rank["role"], rank["index"]): rank["steps"] for rank in ended.bundle.read_json()["ranks"]}
    assert found == dict.fromkeys(ranks, STEPS.get(script))
    assert unnoticed(ended.bundle, tmp_path / "copies") == []


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("script", ["hints.py", "forks.py"])
def test_python_as_people_use_it(dlobd, script, mode) -> None:
    """Annotations are those of plain Python. The time of forked processes is in the code that waits for them."""
    sets = ("--set", f"deploy_mode={mode}")
    ended = dlobd("run", "--job", str(FOREIGN / script), *sets, "--out", str(dlobd.out), within_s=390)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    importers = {row["role"] for row in run["imports"] if row["package"] == "pandas" and row["by"] != "pyspark"}
    assert importers == ({"child"} if script == "forks.py" else set())
    assert [warning for warning in run["warnings"] if warning.startswith("missing: ")] == []


def test_several_clusters_in_one_script(dlobd) -> None:
    """Each role may be on another executor the next time, one ends by an exception, and TensorFlowOnSpark's sleeps
    outlast its jobs: what they wait for has a name, and no lane contradicts another."""
    job = str(FOREIGN / "clusters.py")
    ended = dlobd("run", "--job", job, "--out", str(dlobd.out), within_s=390)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert layers["tensorflow"] > 0
    clips = {clip["kind"] for clip in ended.bundle.read_json()["clips"]}
    assert clips & {"inconsistent", "cycle"} == set()


@pytest.mark.parametrize("workers", [1, 2])
def test_lost_work_is_said_and_not_counted_as_done(dlobd, workers) -> None:
    """An executor dies in a task, which is made again: the attempt that counts has the lane, what was lost has a name
    and a line, and the executor that replaces the dead one was not waited for at the start. Without another one the job
    waits for it."""
    job = str(FOREIGN / "retry.py")
    ended = dlobd("run", "--job", job, "--set", f"workers={workers}", "--out", str(dlobd.out), within_s=390)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    assert [(row["cause"], row["attempts"]) for row in run["lost_work"]] == [("executor lost", 1)]
    (spark,) = [layer for layer in run["layers"] if layer["layer"] == "spark"]
    assert dict(spark["names"])["lost task of collect"] > 2_000_000_000  # it slept so long before it died
    (yarn,) = [layer for layer in run["layers"] if layer["layer"] == "yarn"]
    assert ("notice lost executor" in dict(yarn["names"])) == (workers == 1)


@pytest.mark.parametrize(("mode", "master"), [("client", "ExecutorLauncher"), ("cluster", "yarn.ApplicationMaster")])
def test_another_attempt_of_the_application(dlobd, tmp_path, mode, master) -> None:
    """The ApplicationMaster is killed while tasks run: what the first attempt took is in the breakdown, by its name,
    and a line says what was started again. With the driver in it, it all was."""
    job, begun = str(FOREIGN / "attempts.py"), tmp_path / "begun"
    line = ("spark-submit", "--deploy-mode", mode, "--conf", "spark.yarn.maxAppAttempts=2", job, str(begun))
    started = dlobd.start("submit", "--out", str(dlobd.out), "--", *line)
    until(begun.exists, 90, "a task runs")
    started.container(master).kill()
    killed_ns = time.monotonic_ns()
    ended = started.ended(200)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    lost = [warning for warning in run["warnings"] if warning.startswith("lost work: attempt ")]
    again = "the driver and all its work were" if mode == "cluster" else "its executors were"
    assert [re.sub(r"[\d.]+ s", "T s", one) for one in lost] == [
        f"lost work: attempt 1 of the application lost its ApplicationMaster after T s; {again} started again"
    ]
    found = {layer["layer"]: dict(layer["names"]) for layer in run["layers"]}
    if mode == "cluster":
        assert found["spark"]["lost attempt"] > 2_000_000_000  # its driver started, and asked for executors
        assert found["yarn"]["notice lost attempt"] > 0
    else:
        assert found["spark"]["lost task of collect"] > 0
    # what made it again was started: another ApplicationMaster, and other executors
    path = attribute(assemble(Evidence(ended.bundle.path))).segments
    after = {(s.span.lane.rstrip("0123456789"), s.span.name) for s in path if s.span and s.start_ns > killed_ns}
    assert {("application", "AM logs in"), ("executor-", "executor logs in")} <= after
    assert {clip["kind"] for clip in run["clips"]} & {"inconsistent", "cycle"} == set()
    assert [warning for warning in run["warnings"] if warning.startswith("missing: ")] == []


def test_a_pipeline_fits_and_transforms(dlobd, tmp_path) -> None:
    job = str(FOREIGN / "pipeline.py")
    ended = dlobd("run", "--job", job, "--out", str(dlobd.out), "--", str(tmp_path / "export"), within_s=390)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert layers["tensorflow"] > 0
    assert layers["user"] > 0


def test_a_script_that_raises(dlobd, tmp_path) -> None:
    script = tmp_path / "raises.py"
    script.write_text(
        "from pyspark import SparkContext\n"
        "def bad(n):\n    raise KeyError('no such word')\n"
        "SparkContext().parallelize(range(2), 2).map(bad).collect()\n"
    )
    ended = dlobd("run", "--job", str(script), "--out", str(dlobd.out))
    assert ended.code == 5
    assert ended.line == "dlobd: run failed: KeyError: 'no such word'"
    assert (
        "Traceback"
        in (ended.bundle.logs / "driver.stdout").read_text() + (ended.bundle.logs / "driver.stderr").read_text()
    )


def test_ctrl_c_ends_a_script(dlobd, tmp_path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("from pyspark import SparkContext\nimport time\nSparkContext()\ntime.sleep(600)\n")
    started = dlobd.start("run", "--job", str(script), "--out", str(dlobd.out))
    started.child("user.py", program="python")
    started.signal(signal.SIGINT)
    ended = started.ended(90)
    assert ended.code == 130
    assert dlobd.newest().read_json()["status"] == "interrupted"


FEW = """
from pyspark import SparkContext
from tensorflowonspark import TFCluster

sc = SparkContext()
mode = TFCluster.InputMode.TENSORFLOW
TFCluster.run(sc, lambda args, ctx: None, [], 3, PS, input_mode=mode, reservation_timeout=20)
"""


@pytest.mark.parametrize("launcher", ["tfos", "tfos-stock"])
@pytest.mark.parametrize("servers", [0, 1])
def test_nodes_without_executors_are_counted(dlobd, tmp_path, launcher, servers) -> None:
    (tmp_path / "few.py").write_text(FEW.replace("PS", str(servers)))
    sets = ("--set", f"launcher={launcher}", "--set", "workers=2")
    ended = dlobd("run", "--job", str(tmp_path / "few.py"), *sets, "--out", str(dlobd.out), within_s=200)
    assert ended.code == 5
    assert ended.line == "dlobd: run failed: 3 nodes were asked for, 2 executors registered"
    run = ended.bundle.read_json()
    unexplained_ns = run["unattributed_ns"] + sum(layer["unexplained_ns"] for layer in run["layers"])
    assert unexplained_ns <= 0.05 * run["wall_ns"], run["layers"]


ENDLESS = """
import time
from pyspark import SparkContext
from tensorflowonspark import TFCluster

mode = TFCluster.InputMode.TENSORFLOW
sc = SparkContext()
cluster = TFCluster.run(sc, lambda args, ctx: time.sleep(600), [], 2, 0, input_mode=mode, master_node="chief")
cluster.shutdown(timeout=15)
"""


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_timeout_of_a_shutdown_is_the_reason(dlobd, tmp_path, mode) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    sets = ("--set", "workers=2", "--set", f"deploy_mode={mode}", "--out", str(dlobd.out))
    ended = dlobd("run", "--job", str(tmp_path / "endless.py"), *sets, within_s=200)
    assert ended.code == 5
    reason = "TFCluster.shutdown ended the job: its nodes did not end within timeout = 15 s"
    assert ended.line == f"dlobd: run failed: {reason}"


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_yarns_own_words_are_the_reason(dlobd, tmp_path, mode) -> None:
    (tmp_path / "job.py").write_text("from pyspark import SparkContext\nSparkContext()\n")
    line = ("spark-submit", "--deploy-mode", mode, "--queue", "gpu", str(tmp_path / "job.py"))
    ended = dlobd("submit", "--out", str(dlobd.out), "--", *line, within_s=200)
    assert ended.code == 5
    # YARN joins two messages without a blank
    assert re.fullmatch(
        r"dlobd: run failed: Application application_\w+ submitted by .* to unknown queue: gpu", ended.line
    )


JAVA = {
    "sc.textFile('hdfs:///absent').count()": "Input path does not exist: hdfs:/absent",
    "sc._jvm.java.lang.Class.forName('no.such.Thing')": "ClassNotFoundException: no.such.Thing",
    "sc.parallelize(range(3), 3).barrier().mapPartitions(list).collect()": "[SPARK-24819]: Barrier execution mode",
}


@pytest.mark.parametrize("statement", JAVA)
def test_the_innermost_message_of_java_is_the_reason(dlobd, tmp_path, statement) -> None:
    (tmp_path / "job.py").write_text(f"from pyspark import SparkContext\nsc = SparkContext()\n{statement}\n")
    patience = "spark.scheduler.barrier.maxConcurrentTasksCheck"
    short = ("--conf", f"{patience}.interval=2s", "--conf", f"{patience}.maxFailures=2")
    ended = dlobd(
        "submit", "--out", str(dlobd.out), "--", "spark-submit", *short, str(tmp_path / "job.py"), within_s=200
    )
    assert ended.code == 5
    assert ended.line.startswith(f"dlobd: run failed: {JAVA[statement]}")


SESSIONS = """
import sys
from pyspark.sql import SparkSession

for name, instances in (("looks", "1"), ("works", "2")):
    spark = SparkSession.builder.appName(name).config("spark.executor.instances", instances).getOrCreate()
    print("application", spark.sparkContext.applicationId)
    assert spark.sparkContext.parallelize(range(100), 2).map(lambda n: n + 1).sum() == 5050
    for _ in sys.argv:
        spark.stop()
"""


@pytest.mark.parametrize("scheduler", ["yarn", "standalone"])
@pytest.mark.parametrize("arguments", [(), ("stop-twice",)])
def test_several_applications_in_one_script(dlobd, tmp_path, scheduler, arguments) -> None:
    (tmp_path / "two.py").write_text(SESSIONS)
    sets = ("--set", f"scheduler={scheduler}", "--out", str(dlobd.out), "--", *arguments)
    ended = dlobd("run", "--job", str(tmp_path / "two.py"), *sets, within_s=200)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    ids = re.findall(r"^application (\S+)$", (ended.bundle.logs / "driver.stdout").read_text(), re.MULTILINE)
    run = ended.bundle.read_json()
    assert f"the script created 2 applications: {', '.join(ids)}" in run["warnings"]
    assert [line for line in run["warnings"] if line.startswith("missing: ")] == []
    keys = Evidence(ended.bundle.path).executor_containers
    assert {key.rpartition(".")[0] for key in keys} == {"", "2"}


MASTER = """
import sys
from pyspark import SparkConf, SparkContext

sc = SparkContext(conf=SparkConf().setMaster(sys.argv[1]))
assert sc.parallelize(range(1000), 4).map(lambda n: n * n).sum() == 332833500
sc.stop()
"""


@pytest.mark.parametrize(
    ("master", "mode"),
    [("local", "client"), ("local[2]", "client"), ("local-cluster[2,1,1024]", "client"), ("local[2]", "cluster")],
)
def test_a_master_of_the_script(dlobd, tmp_path, master, mode) -> None:
    (tmp_path / "own.py").write_text(MASTER)
    sets = ("--set", f"deploy_mode={mode}", "--out", str(dlobd.out), "--", master)
    ended = dlobd("run", "--job", str(tmp_path / "own.py"), *sets, within_s=200)
    said = f"the script set its master to {master}: "
    if mode == "cluster":
        assert (ended.code, said in ended.line) == (5, True)
        return
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    assert any(line.startswith(f"{said}YARN took no part") for line in ended.bundle.read_json()["warnings"])


STREAMS = """
import sys, time
from pyspark.sql import SparkSession

spark, seen = SparkSession.builder.getOrCreate(), []
rates = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
query = rates.writeStream.trigger(processingTime="3 seconds").foreachBatch(lambda frame, _: seen.append(frame.count()))
query = query.start()
time.sleep(20) if sys.argv[1] == "sleep" else query.awaitTermination(20)
query.stop()
assert sum(seen) > 0
spark.stop()
"""


@pytest.mark.parametrize("how", ["sleep", "await"])
def test_a_stream_beside_the_main_thread(dlobd, tmp_path, how) -> None:
    (tmp_path / "stream.py").write_text(STREAMS)
    ended = dlobd("run", "--job", str(tmp_path / "stream.py"), "--out", str(dlobd.out), "--", how, within_s=200)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    run = ended.bundle.read_json()
    assert any(
        re.match(r"no call of the main thread waited for \d+ Spark jobs of a stream", w) for w in run["warnings"]
    )
    names = {name: ns for layer in run["layers"] for name, ns in layer["names"]}
    waited_ns = names.get("wait for stream: awaitTermination", 0)
    assert (waited_ns if how == "await" else layers["user"]) > 19 * 10**9
