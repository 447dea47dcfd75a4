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
]


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
    found = {(rank["role"], rank["index"]) for rank in ended.bundle.read_json()["ranks"]}
    assert found == ranks
    assert unnoticed(ended.bundle, tmp_path / "copies") == []


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
    (line,) = [line for line in run["warnings"] if line.startswith("lost work: ")]
    assert line.startswith("lost work: an attempt of task 1 of collect on executor ")
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
