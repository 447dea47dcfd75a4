"""--conf and --queue of dlobd's own jobs: what spark-submit gets, and what is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dlobd.axes import LAUNCHERS
from dlobd.errors import UsageError
from dlobd.experiment import files, own_job, sweeps
from dlobd.experiment.spark_conf import Options, pairs, refusal
from dlobd.experiment.spark_submit_line import KEYS, parse
from dlobd.job.user.spark_settings import JOINED, REPLACEABLE
from dlobd.run.place.embedded import check_queue
from dlobd.run.submit_command import command_of
from dlobd.schema import Experiment
from tests.unit.test_schedulers import TARGET

QUICK = "softmax-mnist-quick"

FREE = (
    "spark.barrier.sync.timeout",
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.locality.wait",
    "spark.ui.enabled",
    "spark.ui.port",
    "spark.yarn.am.memory",
    "spark.yarn.jars",
    "spark.yarn.submit.file.replication",
    REPLACEABLE,
)
"""Settings of dlobd's line that a user may replace: no evidence depends on them."""


def load(*conf: str, queue: str = "", overrides: tuple[str, ...] = ()) -> Experiment:
    return files.load(QUICK, overrides, options=Options(conf, queue))


def settings_of(experiment: Experiment) -> dict[str, str]:
    return parse(command_of(experiment, TARGET, Path("/b")).argv).settings


def test_spark_submit_gets_each_setting_and_the_queue() -> None:
    chosen = load("spark.sql.shuffle.partitions=3", "spark.driver.memory=1g", "spark.a.b=x y", queue="prod")
    assert pairs(chosen.spark_conf)["spark.a.b"] == "x y"
    command = command_of(chosen, TARGET, Path("/b"))
    found = parse(command.argv).settings
    assert (found["spark.sql.shuffle.partitions"], found["spark.a.b"]) == ("3", "x y")
    assert (found["spark.driver.memory"], found["spark.yarn.queue"]) == ("1g", "prod")
    assert command.argv.count("--queue") == 1
    plain = settings_of(files.load(QUICK))
    assert {key: value for key, value in found.items() if key in plain and key != "spark.driver.memory"} == {
        key: value for key, value in plain.items() if key != "spark.driver.memory"
    }


def test_java_options_are_joined_with_those_of_the_recorder() -> None:
    plain = settings_of(files.load(QUICK))["spark.executor.extraJavaOptions"]
    joined = settings_of(load("spark.executor.extraJavaOptions=-XX:+UseG1GC"))["spark.executor.extraJavaOptions"]
    assert joined == f"-XX:+UseG1GC {plain}"


def test_a_line_without_additions_is_unchanged() -> None:
    assert not any("spark.dlobd" in word for word in command_of(files.load(QUICK), TARGET, Path("/b")).argv)


def test_a_file_and_the_options_add_up_and_the_options_win(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'extends = "{QUICK}"\nqueue = "file"\nspark_conf = "spark.a=1 spark.b=2"\n')
    chosen = files.load(mine, options=Options(("spark.b=3", "spark.c=4"), "", "default"))
    assert (pairs(chosen.spark_conf), chosen.queue) == ({"spark.a": "1", "spark.b": "3", "spark.c": "4"}, "file")
    assert files.load(mine, options=Options((), "option")).queue == "option"
    assert files.load(mine, ["spark_conf="]).spark_conf == ""


@pytest.mark.parametrize(
    ("conf", "line"),
    [
        (
            "spark.executor.memory=1g",
            "spark.executor.memory follows from dlobd's setting executor_memory_mb. Next: --set ",
        ),
        (
            "spark.yarn.executor.memoryOverhead=1g",
            "spark.yarn.executor.memoryOverhead follows from dlobd's setting exec",
        ),
        (
            "spark.executor.minMemoryOverhead=1g",
            "spark.executor.minMemoryOverhead follows from dlobd's setting executor_",
        ),
        ("spark.executor.instances=1", "spark.executor.instances follows from dlobd's setting workers."),
        ("spark.yarn.queue=a", "spark.yarn.queue follows from dlobd's setting queue. Next: --set queue=VALUE"),
        (
            "spark.eventLog.enabled=false",
            "spark.eventLog.enabled cannot be set: the event log is evidence. Next: omit it",
        ),
        (
            "spark.python.daemon.module=a",
            "spark.python.daemon.module cannot be set: recording needs dlobd's Python wor",
        ),
        ("spark.dynamicAllocation.enabled=true", "spark.dynamicAllocation.enabled cannot be set: the number of ranks"),
        (
            "spark.driver.extraJavaOptions=-Dlog4j2.configurationFactory=a",
            "-Dlog4j2.configurationFactory replaces log4j2",
        ),
        ("spark.a", "'spark.a' is not spark.KEY=VALUE. Next: --conf spark.KEY=VALUE"),
        ("hadoop.a=1", "'hadoop.a=1' is not spark.KEY=VALUE."),
    ],
)
def test_a_setting_that_dlobd_needs_is_refused_by_name(conf: str, line: str) -> None:
    with pytest.raises(UsageError) as error:
        load(conf)
    assert error.value.line.startswith(f"--conf: {line}")


def test_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'extends = "{QUICK}"\nspark_conf = "spark.eventLog.dir=/x"\n')
    with pytest.raises(UsageError, match=f"^{mine}:2: spark.eventLog.dir cannot be set"):
        files.load(mine)
    mine.write_text(f'extends = "{QUICK}"\nspark_conf = "spark.a=\'"\n')
    with pytest.raises(UsageError, match=f"^{mine}:2: spark_conf: No closing quotation"):
        files.load(mine)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (("launcher=native", "queue=a"), "queue has no effect: scheduler none has no queues"),
        (("scheduler=standalone", "queue=a"), "queue has no effect: scheduler standalone has no queues"),
        (("launcher=native", "spark_conf=spark.a=1"), "spark_conf has no effect: scheduler none runs without Spark"),
    ],
)
def test_settings_without_effect_are_refused(overrides: tuple[str, ...], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        load(overrides=overrides)


def test_the_embedded_cluster_refuses_a_queue_that_it_does_not_have() -> None:
    check_queue(load())
    check_queue(load(queue="default"))
    with pytest.raises(UsageError, match="queue prod: the embedded cluster has only the queue default"):
        check_queue(load(queue="prod"))


@pytest.mark.parametrize("launcher", [name for name in LAUNCHERS.built_in() if not LAUNCHERS.row(name).unavailable])
@pytest.mark.parametrize("way", ["scheduler=yarn", "deploy_mode=cluster", "scheduler=standalone"])
def test_each_setting_of_dlobds_line_is_free_or_refused(launcher: str, way: str) -> None:
    """A setting that dlobd adds to its line needs a decision here: may a user replace it?"""
    if launcher == "native":
        return
    chosen = files.load(QUICK, [f"launcher={launcher}", way, "device=gpu", "executor_cores=2"])
    for key in settings_of(chosen):
        assert refusal(key)[0] or key in (*FREE, *JOINED), key
    for key in (*FREE, *JOINED):
        assert key == REPLACEABLE or not refusal(key)[0], key


def test_options_with_an_equivalent_setting_are_refused_as_settings() -> None:
    for key in ("--master", "--deploy-mode", "--num-executors", "--executor-memory", "--executor-cores"):
        assert refusal(KEYS[key])[1].startswith("--set ")


def test_a_sweep_has_the_options_in_each_point_and_refuses_its_axes(tmp_path: Path) -> None:
    sweep = tmp_path / "s.toml"
    sweep.write_text(f'extends = "{QUICK}"\n[axes]\nspark_conf = ["", "spark.sql.shuffle.partitions=2"]\n')
    found = sweeps.load(sweep, spark=Options(queue="q"))
    assert {point.queue for point in found.points.values()} == {"q"}
    assert len({point.spark_conf for point in found.points.values()}) == 2
    with pytest.raises(UsageError, match="--conf: spark_conf is an axis of the sweep"):
        sweeps.load(sweep, spark=Options(("spark.a=1",)))


def test_keys_of_jobs_without_additions_are_those_of_earlier_versions() -> None:
    chosen = load()
    values: dict[str, Any] = dataclasses.asdict(chosen)
    assert files.key(load("spark.a=1")) != files.key(chosen) != files.key(load(queue="q"))
    assert files.key(
        files.from_dict({k: v for k, v in values.items() if k not in ("queue", "spark_conf")})
    ) == files.key(chosen)
    assert files.key(files.load("softmax-mnist")) == KEY


KEY = "72a38506f7f0a4a9"
"""Key of the main job before these settings existed."""


def test_own_scripts_have_the_options_too(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.touch()
    options = Options(("spark.a.b=1",), "q")
    job = own_job.from_script(str(script), [], options=options.words)
    assert job.options == ("--conf", "spark.a.b=1", "--queue", "q")
    found = parse(command_of(job, TARGET, tmp_path).argv).settings
    assert (found["spark.a.b"], found["spark.yarn.queue"]) == ("1", "q")
    for conf, remedy in (
        ("spark.executor.memory=1g", "--set executor_memory_mb=VALUE"),
        ("spark.dynamicAllocation.enabled=true", "dlobd submit"),
        ("spark.python.daemon.module=a", "omit it"),
    ):
        with pytest.raises(UsageError) as error:
            own_job.from_script(str(script), [], options=Options((conf,)).words)
        assert conf in error.value.line
        assert f"Next: {remedy}" in error.value.line


def test_submit_takes_the_default_queue_unless_the_line_has_one(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.touch()
    assert own_job.from_line(["spark-submit", str(script)], default_queue="q").options == ("--queue", "q")
    line = ["spark-submit", "--queue", "own", str(script)]
    assert own_job.from_line(line, default_queue="q").options == ("--queue", "own")
