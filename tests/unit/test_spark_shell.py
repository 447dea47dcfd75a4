"""What spark-submit takes from the shell: each setting counts, or a message names it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.experiment import own_job
from dlobd.experiment.spark_submit_line import parse, shell_of


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    directory = tmp_path / "home" / "conf"
    directory.mkdir(parents=True)
    (directory / "spark-defaults.conf").write_text("spark.executor.memory 900m\nspark.task.maxFailures 4\n")
    return directory


@pytest.mark.parametrize("by", ["SPARK_CONF_DIR", "SPARK_HOME", "path", "PATH"])
def test_the_defaults_of_the_users_spark_count(conf: Path, by: str) -> None:
    program = conf.parent / "bin" / "spark-submit"
    program.parent.mkdir()
    program.touch(0o755)
    environment = {
        "SPARK_CONF_DIR": {"SPARK_CONF_DIR": str(conf), "SPARK_HOME": "/nowhere"},
        "SPARK_HOME": {"SPARK_HOME": str(conf.parent)},
        "path": {"PATH": "/bin"},
        "PATH": {"PATH": str(program.parent)},
    }[by]
    line = parse([str(program) if by == "path" else "spark-submit", "s.py"])
    shell = shell_of(line, environment)
    assert shell.options == (("--properties-file", str(conf / "spark-defaults.conf")),)
    assert shell.sources == (str(conf / "spark-defaults.conf"),)


def test_another_properties_file_replaces_the_defaults(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "p.conf").write_text("")
    own = ("--properties-file", str(tmp_path / "p.conf"))
    environment = {"SPARK_CONF_DIR": str(conf)}
    assert shell_of(parse(["spark-submit", *own, "s.py"]), environment).options == ()
    with pytest.raises(UsageError, match=r"--load-spark-defaults: .* not both"):
        shell_of(parse(["spark-submit", *own, "--load-spark-defaults", "s.py"]), environment)


def test_variables_have_the_lowest_priority(conf: Path) -> None:
    environment = {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_EXECUTOR_CORES": "",
        "SPARK_YARN_APP_NAME": "mine",
        "SPARK_SUBMIT_OPTS": "-Xmx1g -Dspark.yarn.executor.memoryOverhead=1600 -Dspark.driver.memory=3g -Dother=1",
    }
    shell = shell_of(parse(["spark-submit", "--name", "n", "s.py"]), environment)
    assert shell.options[1:] == (
        ("--conf", "spark.driver.memory=1g"),
        ("--conf", "spark.yarn.executor.memoryOverhead=1600"),
    )
    assert shell.sources[1:] == ("SPARK_DRIVER_MEMORY", "SPARK_SUBMIT_OPTS")


def test_an_absent_program_is_named() -> None:
    shell = shell_of(parse(["spark-submit", "s.py"]), {"PYSPARK_PYTHON": "/no/such/python"})
    assert shell.notes == ("dlobd ignores PYSPARK_PYTHON=/no/such/python: --python names the job's Python.",)


def test_what_dlobd_replaces_is_named(conf: Path) -> None:
    for name in ("spark-env.sh", "hive-site.xml"):
        (conf / name).touch()
    python = {"PYSPARK_PYTHON": "/usr/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
    hadoop = {"DLOBD_HADOOP_CONF": "/c", "YARN_CONF_DIR": "/c", "HADOOP_CONF_DIR": "/d"}
    environment = {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "::1", **python, **hadoop}
    shell = shell_of(parse(["spark-submit", "s.py"]), environment)
    assert shell.notes == (
        "dlobd ignores HADOOP_CONF_DIR=/d: --hadoop-conf names the cluster.",
        "dlobd ignores PYSPARK_PYTHON=/usr/bin/python: --python names the job's Python.",
        "dlobd ignores SPARK_LOCAL_IP=::1: dlobd advertises the address of the cluster's network.",
        f"dlobd does not use these files of {conf}: hive-site.xml, spark-env.sh.",
    )


def test_a_job_has_the_settings_of_its_shell(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = conf / "job.py"
    script.touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    notes: list[str] = []
    job = own_job.from_line(["spark-submit", str(script)], note=notes.append)
    assert job.executor_memory_mb == 900
    assert job.options == ("--properties-file", str(conf / "spark-defaults.conf"))
    own_job.from_script(str(script), [], note=notes.append)
    assert notes == [
        f"Settings of this command come also from {conf}/spark-defaults.conf.",
        f"dlobd run does not use {conf}/spark-defaults.conf: add --conf, or use dlobd submit.",
    ]
    monkeypatch.setenv("MASTER", "local[2]")
    with pytest.raises(UsageError, match=r"spark.master=local\[2\] is not supported"):
        own_job.from_line(["spark-submit", str(script)])
    monkeypatch.delenv("MASTER")
    (conf / "spark-defaults.conf").write_text("spark.api.mode CONNECT\n")
    with pytest.raises(UsageError) as error:
        own_job.from_line(["spark-submit", str(script)])
    assert error.value.line.startswith(f"spark.api.mode=CONNECT in {conf}/spark-defaults.conf is not ")
    assert "Next: --conf spark.api.mode=classic" in error.value.line
