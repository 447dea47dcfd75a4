"""A user's log4j2 configuration, merged with the loggers of dlobd's evidence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dlobd.errors import UsageError
from dlobd.evidence import log4j
from dlobd.experiment import own_job, user_logging
from dlobd.hadoop import spark_logging
from dlobd.job.user import hooks
from dlobd.run.schedulers.base import Command, Target
from dlobd.run.submit_command import command_of
from tests.captured import DATA

TARGET = Target(Path("/c/client"), Path("/c/spark"), Path("/java"), "hdfs://h:1", "127.0.0.1", Path("/c/tmp"))
BUNDLE = Path("/runs/job/20260102T030405Z-0a1b")
QUIET = """
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.spark.name = org.apache.spark.scheduler
logger.spark.level = error
logger.spark.additivity = false
logger.spark.appenderRef.audit.ref = audit
logger.mine.name = org.apache.sparkling
logger.mine.level = debug
"""
DRIVER = "spark.driver.extraJavaOptions"
DAG = "org.apache.spark.scheduler.DAGScheduler"


def submitted(tmp_path: Path, *options: str) -> Command:
    script = tmp_path / "job.py"
    script.write_text("")
    return command_of(own_job.from_line(["spark-submit", *options, str(script)]), TARGET, BUNDLE)


def setting(command: Command, key: str) -> str:
    option = {"spark.driver.extraJavaOptions": "--driver-java-options", "spark.files": "--files"}.get(key)
    if option in command.argv:
        return command.argv[command.argv.index(option) + 1]
    return next((word.removeprefix(f"{key}=") for word in command.argv if word.startswith(f"{key}=")), "")


def configured(command: Command, jvm: str) -> str:
    """Return the files that log4j2 reads: the last option counts."""
    words = setting(command, user_logging.OPTIONS[jvm][-1]).split()
    return [word.partition("=")[2] for word in words if "configurationFile=" in word][-1]


def test_every_line_that_dlobd_reads_is_from_a_logger_of_the_evidence() -> None:
    names = {".".join(name.split(".")[-2:]) for name in spark_logging.evidence_loggers()}
    read = {line.logger for path in DATA.rglob("*stderr") for line in log4j.read(path)}
    assert read - names - {"ipc.ProtobufRpcEngine2"} == set()


def test_without_a_configuration_of_the_user_each_jvm_has_dlobd_s(tmp_path: Path) -> None:
    command = submitted(tmp_path)
    assert configured(command, "driver") == "/c/spark/log4j2.properties"
    assert {configured(command, jvm) for jvm in ("master", "executor")} == {"__spark_conf__/log4j2.properties"}
    assert f"-Ddlobd.log={BUNDLE}/logs/driver.log" in setting(command, "spark.driver.extraJavaOptions")
    assert "-Ddlobd.log=<LOG_DIR>/spark.log" in setting(command, "spark.executor.extraJavaOptions")
    assert not command.files


@pytest.mark.parametrize("option", ["-Dlog4j2.configurationFile=file:", "-Dlog4j.configurationFile="])
def test_a_file_for_the_driver_is_merged(tmp_path: Path, option: str) -> None:
    quiet = tmp_path / "quiet.properties"
    quiet.write_text(QUIET)
    spaced = submitted(tmp_path, "--driver-java-options", f"'{option}/a b.properties'")
    assert f"configurationFile='{option.partition('=')[2]}/a b.properties,/runs" in setting(spaced, DRIVER)
    command = submitted(tmp_path, "--driver-java-options", f"-Xss2m {option}{quiet}")
    own = BUNDLE / "logs" / "log4j2-driver.properties"
    users = option.partition("=")[2] + str(quiet)
    assert configured(command, "driver") == f"{users},{own}"
    assert setting(command, "spark.driver.extraJavaOptions").startswith(f"-Xss2m {option}{quiet} ")
    assert configured(command, "executor") == "__spark_conf__/log4j2.properties"
    lines = command.files[own].splitlines()
    key = next(line for line in lines if line.endswith(f".name={DAG}")).partition(".name")[0]
    assert [line.removeprefix(key) for line in lines if line.startswith(f"{key}.")] == [
        f".name={DAG}", ".level=info", ".appenderRef.dlobd.ref=dlobd", ".additivity=false",
        ".appenderRef.user0.ref=audit", ".appenderRef.user0.level=error",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "file"),
    [
        (
            (
                "--files",
                "QUIET",
                "--conf",
                "spark.executor.extraJavaOptions=-Dlog4j2.configurationFile=quiet.properties",
            ),
            "quiet.properties",
        ),
        # log4j2 finds a file of this name without an option
        (("--files", "QUIET#log4j2.properties"), "log4j2.properties"),
        (("--conf", "spark.yarn.dist.files=QUIET#log4j2.properties"), "log4j2.properties"),
        (("--conf", "spark.executor.defaultJavaOptions=-Dlog4j.configurationFile=file:QUIET"), "file:QUIET"),
    ],
)
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_file_for_containers_is_merged_in_containers(
    tmp_path: Path, mode: str, options: tuple[str, ...], file: str
) -> None:
    quiet = tmp_path / "quiet.properties"
    quiet.write_text(QUIET)
    words = [word.replace("QUIET", str(quiet)) for word in options]
    command = submitted(tmp_path, "--deploy-mode", mode, *words)
    users = file.replace("QUIET", str(quiet))
    assert configured(command, "executor") == f"{users},log4j2-executor.properties"
    copied = [Path(name.partition("#")[0]).name for name in setting(command, "spark.files").split(",")]
    assert "log4j2-executor.properties" in copied
    assert "appenderRef.user0.level=error" in command.files[BUNDLE / "logs" / "log4j2-executor.properties"]
    discovered = file == "log4j2.properties"
    driver = f"{file},log4j2-driver.properties" if mode == "cluster" and discovered else None
    assert configured(command, "driver") == (
        driver or ("__spark_conf__/log4j2.properties" if mode == "cluster" else "/c/spark/log4j2.properties")
    )


XML = """<Configuration xmlns="http://logging.apache.org/log4j/2.0/config"><Loggers>
<Logger name="org.apache.spark" level="WARN"/><Root level="info"><AppenderRef ref="C" level="ERROR"/></Root>
</Loggers></Configuration>"""


def loggers(path: Path, text: str) -> user_logging.UserLogging:
    path.write_text(text)
    options = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile='{path}'"}
    return user_logging.of_line(options, in_cluster=False)["driver"]


def test_the_user_s_levels_decide_what_the_user_sees(tmp_path: Path) -> None:
    own = loggers(tmp_path / "a b.properties", QUIET)
    assert own.appenders(DAG) == [("audit", "error")]
    assert own.appenders("org.apache.spark.SparkContext") == [("out", "warn")]
    assert loggers(tmp_path / "a.xml", XML).appenders(DAG) == [("C", "error")]
    assert loggers(tmp_path / "b.xml", XML).appenders("org.apache.hadoop.X") == [("C", "error")]
    assert loggers(tmp_path / "c.xml", XML.replace("ERROR", "ALL")).appenders(DAG) == [("C", "warn")]
    short = loggers(tmp_path / "short.properties", "rootLogger = info, out, file\n")
    assert short.appenders(DAG) == [("out", "info"), ("file", "info")]
    assert short.restated().splitlines() == [
        "rootLogger.level=info", "rootLogger.appenderRef.user0.ref=out", "rootLogger.appenderRef.user1.ref=file"
    ]  # fmt: skip
    unread = loggers(tmp_path / "a.yaml", "Configuration: {}")
    assert not unread.loggers
    assert "additivity=false" not in spark_logging.evidence().replace("logger.dlobdrpc.additivity=false", "")


def test_options_that_cannot_be_merged_are_named_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"-Dlog4j2\.configurationFactory replaces log4j2's configuration"):
        submitted(tmp_path, "--driver-java-options", "-Dlog4j2.configurationFactory=com.example.Ours")
    noted: list[str] = []
    line = ["spark-submit", "--conf", "spark.executor.extraJavaOptions=-Dlog4j.configuration=file:old.properties"]
    (tmp_path / "job.py").write_text("")
    own_job.from_line([*line, str(tmp_path / "job.py")], note=noted.append)
    (text,) = noted
    assert text == (
        "spark.executor.extraJavaOptions: log4j2 does not merge files of log4j 1, so dlobd's file replaces "
        "-Dlog4j.configuration=file:old.properties"
    )


def test_the_root_logger_s_level_filters_the_lines_of_the_evidence_on_the_console() -> None:
    calls: list[object] = []
    state: dict[str, object] = {}
    root = SimpleNamespace(
        getLevel=lambda: state["level"], addFilter=calls.append, removeFilter=lambda f: calls.append(("-", f))
    )
    additive = SimpleNamespace(isAdditive=lambda: not state["merged"])
    configuration = SimpleNamespace(getRootLogger=lambda: root, getLoggerConfig=lambda name: additive)
    manager = SimpleNamespace(getContext=lambda current: SimpleNamespace(getConfiguration=lambda: configuration))
    threshold = SimpleNamespace(createFilter=lambda level, match, mismatch: f"from {level}")
    core = SimpleNamespace(filter=SimpleNamespace(ThresholdFilter=threshold))
    log4j = SimpleNamespace(LogManager=manager, core=core)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(logging=SimpleNamespace(log4j=log4j))))
    context = SimpleNamespace(_jvm=jvm)
    for merged, level in ((False, "WARN"), (False, "ERROR"), (True, "OFF")):
        state |= {"merged": merged, "level": level}
        hooks._filter_console(context)
    assert calls == ["from WARN", ("-", "from WARN"), "from ERROR"]
