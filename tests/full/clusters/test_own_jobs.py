"""Scripts in the style of TensorFlowOnSpark's examples, each in one of its modes, unchanged."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from cluster.test_ways import explained

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
def test_a_mode_of_tensorflowonspark(dlobd, script, settings, arguments, ranks) -> None:
    """It ends well, 95 % is explained, and the person's main function is TensorFlow's time."""
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


def test_lost_work_is_said_and_not_counted_as_done(dlobd) -> None:
    """An executor dies in a task, which is made again: the attempt that counts has the lane, what was lost has a name
    and a line, and the executor that replaces the dead one was not waited for at the start."""
    job = str(FOREIGN / "retry.py")
    ended = dlobd("run", "--job", job, "--out", str(dlobd.out), within_s=390)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    (line,) = [line for line in run["warnings"] if line.startswith("lost work: ")]
    assert line.startswith("lost work: an attempt of task 1 of collect on executor ")
    (spark,) = [layer for layer in run["layers"] if layer["layer"] == "spark"]
    assert dict(spark["names"])["lost task of collect"] > 2_000_000_000  # it slept so long before it died


def test_a_pipeline_fits_and_transforms(dlobd, tmp_path) -> None:
    """TFEstimator and TFModel: SQL, feed, ranks and plain tasks in one application."""
    job = str(FOREIGN / "pipeline.py")
    ended = dlobd("run", "--job", job, "--out", str(dlobd.out), "--", str(tmp_path / "export"), within_s=390)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert layers["tensorflow"] > 0
    assert layers["user"] > 0


def test_a_script_that_raises(dlobd, tmp_path) -> None:
    """The cause is the last line of its traceback, or of the task's."""
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
    """Nothing of it is left, and what is known is kept."""
    script = tmp_path / "sleeps.py"
    script.write_text("from pyspark import SparkContext\nimport time\nSparkContext()\ntime.sleep(600)\n")
    started = dlobd.start("run", "--job", str(script), "--out", str(dlobd.out))
    started.child("own.py", program="python")
    started.signal(signal.SIGINT)
    ended = started.ended(90)
    assert ended.code == 130
    assert dlobd.newest().read_json()["status"] == "interrupted"
