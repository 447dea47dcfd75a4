"""Valid combinations of scheduler, launcher, input and deploy mode, and the commands of schedulers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlobd.axes import LAUNCHERS, SCHEDULERS
from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.paths import python
from dlobd.run.place.standalone import link_home
from dlobd.run.preflight.capacity import cores_of, gpus_of
from dlobd.run.schedulers.base import Command, PackedInstallation, Submission, Target

QUICK = "softmax-mnist-quick"
TARGET = Target(
    client_conf_dir=Path("/c/client"),
    spark_conf_dir=Path("/c/spark"),
    java_home=Path("/java"),
    fs_uri="hdfs://127.0.0.1:9000",
    bind_ip="127.0.0.1",
    tmp_dir=Path("/c/tmp"),
    master="spark://127.0.0.1:7077",
    spark_home=Path("/c/spark-home"),
)

REFUSED = {
    "launcher=native input=feed": "launcher native needs scheduler=none and input=read, but --set input=feed was ",
    "launcher=native scheduler=yarn deploy_mode=cluster input=feed": (
        "launcher native needs scheduler=none, deploy_mode=client and input=read, but --set scheduler=yarn, "
        "--set deploy_mode=cluster and --set input=feed were given: "
    ),
    "scheduler=none launcher=tfos": "scheduler none needs launcher=native and input=read, but --set launcher=tfos was ",
    "scheduler=standalone deploy_mode=cluster": "scheduler standalone needs deploy_mode=client, but ",
    "scheduler=local-cluster deploy_mode=cluster": "scheduler local-cluster needs deploy_mode=client, but ",
}


@pytest.mark.parametrize("settings", REFUSED)
def test_what_cannot_work_is_refused_in_one_line(settings: str) -> None:
    with pytest.raises(UsageError) as caught:
        files.load(QUICK, settings.split())
    assert caught.value.line.startswith(REFUSED[settings])
    assert "Next: --set " in caught.value.line


def test_a_conflicting_setting_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'extends = "{QUICK}"\ninput = "feed"\n')
    with pytest.raises(UsageError, match=rf"input=read, but {mine}:2 has input=feed: it starts plain processes"):
        files.load(mine, ["launcher=native"])


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("launcher=native", "implied by launcher=native: scheduler=none, input=read"),
        ("scheduler=none", "implied by scheduler=none: launcher=native, input=read"),
        ("launcher=tfos-stock", "implied by launcher=tfos-stock: executor_overhead_mb=2560"),
    ],
)
def test_settings_without_a_choice_are_implied_and_shown(setting: str, line: str) -> None:
    told: list[str] = []
    experiment = files.load(QUICK, [setting], told.append)
    assert told == [line]
    for words in line.partition(": ")[2].split(", "):
        name, _, value = words.partition("=")
        assert str(getattr(experiment, name)) == value
    assert files.load(QUICK, ["launcher=barrier"], told.append).scheduler == "yarn"
    assert told == [line]


def _valid() -> list[tuple[str, ...]]:
    """Return every combination of scheduler, launcher, input and deploy mode that is accepted."""
    found = []
    for scheduler in SCHEDULERS.names():
        for launcher in LAUNCHERS.names():
            for source in ("feed", "read"):
                for mode in ("client", "cluster"):
                    way = (scheduler, launcher, source, mode)
                    try:
                        files.load(QUICK, _settings(way))
                    except UsageError:
                        continue
                    found.append(way)
    return found


def _settings(way: tuple[str, ...]) -> list[str]:
    fields = ("scheduler", "launcher", "input", "deploy_mode")
    return [f"{field}={value}" for field, value in zip(fields, way, strict=True)]


def test_exactly_these_ways_are_valid() -> None:
    spark = ("tfos", "tfos-stock", "barrier")
    wanted = {("yarn", launcher, source, mode) for launcher in spark for source in ("feed", "read") for mode in MODES}
    wanted |= {(s, launcher, i, "client") for s in OWN for launcher in spark for i in ("feed", "read")}
    wanted |= {("yarn", "distributor", "read", mode) for mode in MODES}
    wanted |= {(s, "distributor", "read", "client") for s in OWN}
    assert set(_valid()) == wanted | {("none", "native", "read", "client")}


MODES = ("client", "cluster")
OWN = ("standalone", "local-cluster")


def test_a_launcher_implies_settings_unless_the_user_sets_them(tmp_path: Path) -> None:
    assert files.load(QUICK, ["launcher=native"]).scheduler == "none"
    default = files.load(QUICK).executor_overhead_mb
    stock = files.load(QUICK, ["launcher=tfos-stock"])
    assert stock.executor_overhead_mb > default
    assert dataclasses.replace(stock, launcher="tfos", executor_overhead_mb=default) == files.load(QUICK)
    assert files.load(QUICK, ["launcher=tfos-stock", "executor_overhead_mb=900"]).executor_overhead_mb == 900
    mine = tmp_path / "mine.toml"
    mine.write_text(f'extends = "{QUICK}"\nexecutor_overhead_mb = 901\n')
    assert files.load(mine, ["launcher=tfos-stock"]).executor_overhead_mb == 901


def _command(scheduler: str, target: Target | None = TARGET, *settings: str) -> Command:
    chosen = files.load(QUICK, [f"scheduler={scheduler}", *settings])
    conf = {"spark.python.daemon.module": "x.daemon"}
    job = Path("/b/evidence/job.json")
    submission = Submission(
        "dlobd-x",
        chosen.deploy_mode,
        chosen.workers,
        cores_of(chosen),
        gpus_of(chosen),
        chosen.executor_memory_mb,
        chosen.executor_overhead_mb,
        conf,
        Path("/jobs/train.py"),
        (str(job),),
        "t-1",
        (job,),
    )
    command: Command = SCHEDULERS.get(scheduler)(submission, target, job.parent)
    return command


def _conf(command: Command) -> Mapping[str, str]:
    words = iter(command.argv)
    return dict(next(words).split("=", 1) for word in words if word == "--conf")  # type: ignore[misc]


def _option(command: Command, name: str) -> str:
    return command.argv[command.argv.index(name) + 1]


@pytest.mark.parametrize(
    ("scheduler", "master"), [("standalone", "spark://127.0.0.1:7077"), ("local-cluster", "local-cluster[2,1,512]")]
)
def test_spark_without_yarn(scheduler: str, master: str) -> None:
    command = _command(scheduler)
    conf = _conf(command)
    assert _option(command, "--master") == master
    assert command.argv[-2:] == ("/jobs/train.py", "/b/evidence/job.json")
    assert (conf["spark.executor.cores"], conf["spark.cores.max"], conf["spark.executor.memory"]) == ("1", "2", "512m")
    assert conf["spark.executorEnv.LOG_DIRS"] == "."
    assert conf["spark.python.daemon.module"] == "x.daemon"
    assert conf["spark.eventLog.dir"] == "hdfs://127.0.0.1:9000/spark-events"
    assert command.environment["SPARK_HOME"] == "/c/spark-home"
    assert command.environment["LANG"], "a line that is run by hand may meet a shell without a locale"
    assert not [word for word in (*command.argv, *command.environment) if "yarn" in word.lower()]


def test_other_schedulers_share_the_settings_of_yarn() -> None:
    yarn, own = _conf(_command("yarn")), _conf(_command("standalone"))
    different = {key for key in yarn.keys() & own.keys() if yarn[key] != own[key]}
    assert different == {"spark.executor.extraJavaOptions"}
    memory = {"spark.executor.memoryOverhead", "spark.executor.maxNumFailures"}  # read by YARN only
    assert {key for key in yarn.keys() - own.keys() if not key.startswith("spark.yarn.")} == memory
    command = _command("none", None, "launcher=native", "input=read")
    assert command.argv[1:] == ("/jobs/train.py", "/b/evidence/job.json")
    assert not any("SPARK" in name or "JAVA" in name for name in command.environment)


def test_nodes_that_have_nothing_of_ours() -> None:
    packed = PackedInstallation(
        "hdfs://n/e.tar#environment", "./environment/bin/python", "hdfs://n/l.tar", Path("/p/d.zip")
    )
    target = dataclasses.replace(TARGET, events_dir="/user/ann/events", packed=packed)
    for mode in ("client", "cluster"):
        command = _command("yarn", target, f"deploy_mode={mode}")
        conf = _conf(command)
        assert conf["spark.pyspark.python"] == "./environment/bin/python"
        assert (conf["spark.yarn.dist.archives"], conf["spark.yarn.archive"]) == (packed.environment, packed.spark_libs)
        assert "spark.yarn.jars" not in conf
        assert conf["spark.yarn.tags"] == "t-1"
        assert conf["spark.eventLog.dir"] == "hdfs://127.0.0.1:9000/user/ann/events"
        assert _option(command, "--py-files") == "file:///p/d.zip"
        assert conf.get("spark.pyspark.driver.python") == (str(python()) if mode == "client" else None)
        own = {key for key, value in conf.items() if str(python().parents[1]) in value}
        assert own == ({"spark.pyspark.driver.python"} if mode == "client" else set())
    assert conf["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == "./environment/bin/python"


def test_workers_write_into_a_home_of_links(tmp_path: Path) -> None:
    home = tmp_path / "pyspark"
    for name in ("bin", "jars", "work"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(name)
    links = link_home(home, tmp_path / "cluster")
    (links / "work" / "app-1").mkdir()
    again = link_home(home, tmp_path / "cluster")
    assert again == links
    assert (links / "bin" / "file").read_text() == "bin"
    assert list((links / "work").iterdir()) == []
    assert [path.name for path in (home / "work").iterdir()] == ["file"]
    assert sorted(path.name for path in links.iterdir()) == ["bin", "jars", "work"]


def test_cores_and_gpus_belong_to_the_one_task_of_an_executor() -> None:
    plain = _conf(_command("yarn"))
    assert not [key for key in plain if "gpu" in key or key == "spark.task.cpus"]
    command = _command("yarn", TARGET, "executor_cores=3", "device=gpu")
    conf = _conf(command)
    assert (_option(command, "--executor-cores"), conf["spark.task.cpus"]) == ("3", "3")
    assert conf["spark.executor.resource.gpu.amount"] == conf["spark.task.resource.gpu.amount"] == "1"
    assert conf["spark.executor.resource.gpu.discoveryScript"] == "./gpus.sh"
    assert _option(command, "--files").endswith("/jobs/gpus.sh")
    beside = _option(_command("yarn", TARGET, "deploy_mode=cluster", "device=gpu"), "--files").split(",")
    assert [Path(name).name for name in beside] == ["job.json", "gpus.sh"]
    standalone = _conf(_command("standalone", TARGET, "executor_cores=3"))
    assert (standalone["spark.cores.max"], standalone["spark.executor.cores"]) == ("6", "3")
    assert "local-cluster[2,3,512]" in _command("local-cluster", TARGET, "executor_cores=3").argv
