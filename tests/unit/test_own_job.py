"""A job of the user: its settings, its spark-submit command, and refusals."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.experiment import files, own_job
from dlobd.experiment.spark_submit_line import megabytes, merged, parse
from dlobd.job.user.spark_settings import REPLACEABLE, prefer_users, replaceable
from dlobd.run import runner, submit_command
from dlobd.run.place.base import kind_of


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "my job.py"
    path.write_text("print('hello')\n")
    return str(path)


def line(*options: str, script: str) -> list[str]:
    return ["spark-submit", *options, script, "--steps", "3"]


def test_missing_settings_are_those_of_the_main_experiment(script: str) -> None:
    job = own_job.from_script(script, ["a"])
    main = files.load("softmax-mnist")
    for name in set(own_job.SETTINGS) - {"name"}:
        assert getattr(job, name) == getattr(main, name)
    assert (job.name, job.arguments, job.options) == ("my-job", ("a",), ())
    assert files.key(job) == files.key(own_job.from_script(script, ["a"]))
    Path(script).write_text("print('other')\n")
    assert files.key(job) != files.key(own_job.from_script(script, ["a"]))


def test_a_script_has_the_path_and_the_temporary_directory_of_plain_spark_submit(script: str, tmp_path: Path) -> None:
    """spark-submit resolves links in a script's path. The environment keeps the user's TMPDIR."""
    link = tmp_path / "link.py"
    link.symlink_to(script)
    job = own_job.from_script(str(link), ["a"])
    _, target = kind_of(job).planned(job, None)
    command = submit_command.command_of(job, target, tmp_path)
    assert command.argv[-2:] == (str(Path(script).resolve()), "a")
    assert "TMPDIR" not in command.environment


def test_settings_of_an_own_job(script: str) -> None:
    job = own_job.from_script(script, [], ["workers=3", "launcher=tfos-stock", "name=mine", "timeout_s=99"])
    assert (job.workers, job.launcher, job.name, job.timeout_s) == (3, "tfos-stock", "mine", 99)
    assert job.executor_overhead_mb == 2560
    conf = own_job.daemon_conf(job)
    assert conf["spark.python.daemon.module"] == "dlobd.job.user.stock_daemon"


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("model=cnn", "model is a setting of dlobd's own training job; your script decides it"),
        ("wrkers=2", "Unknown setting 'wrkers'; did you mean 'workers'?"),
        ("workers=two", "workers must be an integer, not 'two'"),
        ("workers=0", "workers must be between 1 and 1000, not 0"),
        ("workers", "expected key=value"),
        ("launcher=barrier", "launcher barrier runs only dlobd's own trainers"),
        ("scheduler=none", "scheduler none runs only dlobd's trainers"),
        ("name=a/b", "it names a directory"),
    ],
)
def test_unsupported_settings_are_refused(script: str, override: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        own_job.from_script(script, [], [override])
    assert what in error.value.line


def test_names_that_a_container_cannot_have_are_refused(tmp_path: Path, script: str) -> None:
    for path, what in (
        (tmp_path / "no.py", "cannot be read: No such file"),
        (tmp_path / "a.jar", "not a Python script"),
    ):
        with pytest.raises(UsageError, match=what):
            own_job.from_script(str(path), [])
    path = tmp_path / "user.py"
    path.write_text("")
    own_job.from_script(str(path), [])
    with pytest.raises(UsageError, match="rename the script"):
        own_job.from_script(str(path), [], ["deploy_mode=cluster"])


def test_options_of_spark_submit_become_settings(script: str) -> None:
    words = line(
        "--num-executors", "3", "--conf", "spark.executor.memory=1g", "--deploy-mode", "cluster", script=script
    )
    job = own_job.from_line(words, ["timeout_s=77"])
    assert (job.workers, job.executor_memory_mb, job.deploy_mode, job.timeout_s) == (3, 1024, "cluster", 77)
    assert job.options == tuple(words[1:-3])
    assert job.arguments == ("--steps", "3")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--master", "local[2]"), "spark.master=local[2] is not supported: the job runs on YARN. Next: "),
        (("--class", "a.B"), "runs in the JVM"),
        (("--conf", "spark.pyspark.python=python3"), "omit it, and use dlobd's option --python python3"),
        (("--conf", "spark.python.daemon.module=mine"), "recording needs dlobd's worker daemon"),
        (("--conf", "spark.yarn.appMasterEnv.PYSPARK_PYTHON=./more/bin/python"), "appMasterEnv.PYSPARK_PYTHON=./more"),
        (("--conf", "spark.executorEnv.PYSPARK_PYTHON=./more/bin/python"), "executorEnv.PYSPARK_PYTHON=./more"),
        (("--conf", "spark.yarn.appMasterEnv.PYSPARK_DRIVER_PYTHON=ipython"), "PYSPARK_DRIVER_PYTHON=ipython is not"),
        (("--conf", "spark.yarn.unmanagedAM.enabled=true"), "needs the ApplicationMaster's container. Next: --conf "),
        (("--conf", "spark.api.mode=connect"), "spark.api.mode=connect is not supported: the job runs on YARN"),
        (("--conf", "spark.executor.memoryOverheadFactor=much"), "cannot derive spark.executor.memoryOverhead from"),
        (("--conf", "spark.executor.minMemoryOverhead=much"), "from spark.executor.minMemoryOverhead=much. Next: "),
        (("--kill", "app"), "does not submit a job"),
        (("--deploy-mode", "both"), "Unknown deploy mode 'both'"),
        (("--executor-memory", "lots"), "executor_memory_mb must be an integer, not 'lots'"),
        (("--executor-memory", "100m"), "executor_memory_mb must be between 450"),
    ],
)
def test_options_that_prevent_recording_are_refused(script: str, options: tuple[str, ...], what: str) -> None:
    with pytest.raises(UsageError) as error:
        own_job.from_line(line(*options, script=script))
    assert what in error.value.line


@pytest.mark.parametrize("name", ["a,b.py", 'a"b.py', "a$b.py", "a`b.py"])
def test_a_script_whose_name_a_container_cannot_have_is_refused(tmp_path: Path, name: str) -> None:
    """Spark splits names of files at commas, and YARN puts them between double quotes for a shell."""
    (tmp_path / name).write_text("")
    own_job.from_script(str(tmp_path / name), [])
    with pytest.raises(UsageError, match="Next: rename the script"):
        own_job.from_script(str(tmp_path / name), [], ["deploy_mode=cluster"])


def test_a_line_may_set_cores_and_python_but_nothing_twice(script: str) -> None:
    own_job.from_line(line("--executor-cores", "4", "--conf", "spark.task.cpus=4", script=script))
    own_job.from_line(line("--master", "yarn", "--conf", f"spark.pyspark.python={sys.executable}", script=script))
    with pytest.raises(UsageError, match=r"--set workers: the spark-submit command also sets it"):
        own_job.from_line(line("--num-executors", "3", script=script), ["workers=2"])
    with pytest.raises(UsageError, match="submit commands run on YARN"):
        own_job.from_line(line(script=script), ["scheduler=standalone"])


@pytest.mark.parametrize(
    ("settings", "overhead_mb"),
    [
        (("spark.yarn.executor.memoryOverhead=1600",), 1600),
        (("spark.yarn.executor.memoryOverhead=1600", "spark.executor.memoryOverhead=2g"), 2048),
        (("spark.executor.memoryOverheadFactor=0.8",), 800),
        (("spark.executor.memoryOverheadFactor=0.2",), 384),
        (("spark.executor.memoryOverheadFactor=0.2", "spark.executor.minMemoryOverhead=512m"), 512),
        (("spark.executor.minMemoryOverhead=50m",), 100),
        (("spark.executor.memoryOverheadFactor=0.8", "spark.yarn.executor.memoryOverhead=900"), 900),
    ],
)
def test_the_overhead_is_that_of_spark(script: str, settings: tuple[str, ...], overhead_mb: int) -> None:
    words = [word for setting in settings for word in ("--conf", setting)]
    job = own_job.from_line(line("--executor-memory", "1000m", *words, script=script))
    assert job.executor_overhead_mb == overhead_mb
    (submit,) = [step for step in runner.plan(job) if "spark-submit" in step]
    assert "spark.executor.memoryOverhead=1280m" not in submit
    with pytest.raises(UsageError, match=r"also sets it, with spark\..*emoryOverhead.*="):
        own_job.from_line(line(*words, script=script), ["executor_overhead_mb=1500"])


@pytest.mark.parametrize("value", ["false", "FALSE"])
def test_spark_submit_waits_for_the_application(script: str, value: str) -> None:
    notes: list[str] = []
    words = ("--conf", f"spark.yarn.submit.waitAppCompletion={value}")
    job = own_job.from_line(line("--deploy-mode", "cluster", *words, script=script), note=notes.append)
    assert notes == [f"dlobd overrides {words[1]}: its window ends when spark-submit exits."]
    (submit,) = [step for step in runner.plan(job) if "spark-submit" in step]
    assert re.findall(r"waitAppCompletion=(\w+)", submit) == ["true"]
    own_job.from_line(line(*words, script=script), note=notes.append)
    assert len(notes) == 1, "in client mode the setting has no effect"


def test_web_pages_of_the_driver_are_off_by_default(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In them Spark 4.3 loses a race with itself; the setting is shown, and their own has the last word."""
    monkeypatch.setenv("DLOBD_CACHE", "/tmp/dl-none")
    for own, found in (((), "false"), (("--conf", "spark.ui.enabled=true"), "true")):
        (submit,) = [
            step for step in runner.plan(own_job.from_line(line(*own, script=script))) if "spark-submit" in step
        ]
        assert re.findall(r"spark\.ui\.enabled=(\w+)", submit) == [found]


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_plan_shows_the_line(script: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", "/tmp/dl-none")
    job = own_job.from_line(line("--deploy-mode", mode, "--files", "a.txt", script=script))
    (submit,) = [step for step in runner.plan(job) if "spark-submit" in step]
    assert f"--deploy-mode {mode}" in submit
    assert "spark.python.daemon.module=dlobd.job.user.daemon" in submit
    entry, _, rest = submit.partition("jobs/user.py tfos ")
    assert rest.endswith(" \\\n    --steps 3"), "each option is on its own line, which a shell joins"
    if mode == "cluster":
        assert f"a.txt,{Path(script).as_uri()}" in entry
        assert "my%20job.py" in entry
        assert "'my job.py'" in rest
        assert script not in rest
    else:
        assert script in rest
    assert asdict(job)["options"] == ("--deploy-mode", mode, "--files", "a.txt")


OURS = (
    *("/opt/bin/spark-submit", "--master", "yarn", "--num-executors", "2", "--executor-memory", "512m"),
    *("--driver-java-options", "-Xlog:a", "--files", "script.py", "--conf", "spark.executor.extraJavaOptions=-Xlog:b"),
    *("--conf", "spark.ui.port=0", "own.py", "tfos", "script.py"),
)


def after(line: tuple[str, ...], option: str) -> list[str]:
    return [line[i + 1] for i, word in enumerate(line) if word == option]


def test_a_line_is_taken_apart() -> None:
    line = parse(["x/spark-submit", "--executor-memory=1g", "-c", "a=b=c", "--verbose", "s.py", "--master", "m"])
    assert line.options == (("--executor-memory", "1g"), ("--conf", "a=b=c"), ("--verbose", None))
    assert (line.script, line.arguments) == ("s.py", ("--master", "m"))
    assert line.settings == {"spark.executor.memory": "1g", "a": "b=c"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "needs a spark-submit command, but there is none"),
        (["python", "s.py"], "not 'python'"),
        (["spark-submit"], "has no script"),
        (["spark-submit", "--executor-memory"], "--executor-memory needs a value"),
        (["spark-submit", "--memory", "1g", "s.py"], "has no option --memory"),
        (["spark-submit", "--conf", "a", "s.py"], "expected KEY=VALUE"),
        (["spark-submit", "--properties-file", "/nowhere", "s.py"], "/nowhere cannot be read: No such file"),
    ],
)
def test_an_invalid_spark_submit_command_is_refused(words: list[str], what: str) -> None:
    with pytest.raises(UsageError) as error:
        _ = parse(words).settings
    assert what in error.value.line


def test_the_person_has_the_last_word() -> None:
    theirs = ("--conf", "spark.executor.instances=3", "--executor-memory", "1g", "--queue", "q")
    line = merged(OURS, theirs)
    assert line[0] == "/opt/bin/spark-submit"
    assert line[-3:] == ("own.py", "tfos", "script.py")
    assert "--num-executors" not in line
    assert after(line, "--executor-memory") == ["1g"]
    assert after(line, "--queue") == ["q"]
    assert "spark.executor.instances=3" in after(line, "--conf")
    assert "spark.ui.port=0" in after(line, "--conf")


def test_options_of_both_sides_are_joined() -> None:
    theirs = ("--conf", "spark.driver.extraJavaOptions=-Da=1", "--files", "a,b")
    line = merged(OURS, (*theirs, "-c", "spark.executor.extraJavaOptions=-Db=2"))
    assert after(line, "--driver-java-options") == ["-Da=1 -Xlog:a"]
    assert after(line, "--files") == ["a,b,script.py"]
    executor = [value for value in after(line, "--conf") if "executor.extraJava" in value]
    assert executor == ["spark.executor.extraJavaOptions=-Db=2 -Xlog:b"]
    assert not [value for value in after(line, "--conf") if value.startswith("spark.driver.extraJava")]


@pytest.mark.parametrize(
    ("theirs", "gone"),
    [
        ("spark.yarn.executor.memoryOverhead=1600", "spark.executor.memoryOverhead"),
        ("spark.executor.memoryOverheadFactor=0.3", "spark.executor.memoryOverhead"),
        ("spark.yarn.driver.memoryOverhead=700", "spark.driver.memoryOverhead"),
        ("spark.yarn.max.executor.failures=9", "spark.executor.maxNumFailures"),
        ("spark.driver.host=edge", "spark.driver.bindAddress"),
        ("spark.yarn.jar=hdfs:/a.jar", "spark.yarn.archive"),
    ],
)
def test_a_value_of_dlobd_overrules_no_setting_of_the_user(theirs: str, gone: str) -> None:
    """Under a deprecated name, or by another setting. dlobd's other values stay; a script may replace them."""
    keys = {
        *("spark.executor.memoryOverhead", "spark.driver.memoryOverhead", "spark.executor.maxNumFailures"),
        *("spark.driver.bindAddress", "spark.yarn.archive"),
    }
    ours = [word for key in keys for word in ("--conf", f"{key}=1")]
    found = after(merged(("spark-submit", *ours, "own.py"), ("--conf", theirs)), "--conf")
    left = [f"{key}=1" for key in sorted(keys - {gone})]
    assert sorted(found) == sorted([*left, theirs, f"spark.dlobd.replaceable={','.join(left)}"])


class Conf(dict[str, str]):
    """A SparkConf of the JVM."""

    def toDebugString(self) -> str:  # noqa: N802  the JVM's name
        return "\n".join(f"{key}={value}" for key, value in self.items())

    def remove(self, key: str) -> None:
        del self[key]

    def set(self, key: str, value: str) -> None:
        self[key] = value


def test_a_setting_of_the_script_is_not_overruled() -> None:
    """SparkConf().set() in the script, under a deprecated name; a value of the user's line stays."""
    ours = {REPLACEABLE: "spark.executor.maxNumFailures=1,spark.executor.memoryOverhead=1280m"}
    old = {"spark.yarn.executor.memoryOverhead": "1600", "spark.yarn.max.executor.failures": "9"}
    conf = Conf({**ours, **old, "spark.executor.memoryOverhead": "1280m", "spark.executor.maxNumFailures": "3"})
    assert prefer_users(conf, Conf(), ["mine"]) == ["spark.executor.memoryOverhead"]
    assert conf == {**ours, **old, "spark.executor.maxNumFailures": "3"}
    address = {"spark.driver.bindAddress": "::1", "spark.driver.host": "::1", "spark.ui.port": "0"}
    listed = {REPLACEABLE: replaceable(address)}
    assert prefer_users(Conf({**address, **listed}), Conf(), ["mine"]) == []
    conf = Conf({**address, **listed, "spark.driver.host": "h"})
    assert prefer_users(conf, Conf(), []) == ["spark.driver.bindAddress"]
    with pytest.raises(RuntimeError, match=r"daemon\.module=other in the script is not supported"):
        prefer_users(Conf({"spark.python.daemon.module": "other"}), Conf(), ["mine"])


def test_lists_and_java_options_of_a_script_are_added() -> None:
    java, archives = "spark.executor.extraJavaOptions", "spark.yarn.dist.archives"
    submitted = Conf({java: "-Xlog:b", archives: "a#environment", "spark.yarn.tags": "t"})
    conf = Conf({java: "-Dc=1", archives: "a#environment,b#c", "spark.yarn.tags": "t"})
    prefer_users(conf, submitted, [])
    assert conf == {java: "-Xlog:b -Dc=1", archives: "a#environment,b#c", "spark.yarn.tags": "t"}


def test_settings_of_a_properties_file_count(tmp_path: Path) -> None:
    file = tmp_path / "p.conf"
    file.write_text("# comment\nspark.ui.port 4050\nspark.executor.memory=2g\nspark.files : c\n")
    line = merged(OURS, ("--properties-file", str(file), "--executor-memory", "1g"))
    assert "spark.ui.port=0" not in line
    assert after(line, "--executor-memory") == ["1g"]
    assert after(line, "--files") == ["c,script.py"]
    file.write_text(
        "! comment \\\nspark.a = x,\\\n    y \nspark.b\\:c=\\u00e9\\t\\\\\nother.key 1\n"
        "spark.yarn.executor.memoryOverhead 1600\n"
    )
    given = parse(("spark-submit", "--properties-file", str(file), "s.py")).given
    assert {key: one.value for key, one in given.items()} == {
        "spark.a": "x,y",
        "spark.b:c": "é\t\\",
        "spark.executor.memoryOverhead": "1600",
    }
    assert str(given["spark.executor.memoryOverhead"]) == f"spark.yarn.executor.memoryOverhead=1600 in {file}"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("1g", 1024), ("2GB", 2048), ("2048k", 2), ("1t", 1 << 20), ("x", None), ("", None)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size: int | None) -> None:
    assert megabytes(text) == size
