"""Scripts and lines with their own logging, and event logs as clusters write them: the breakdown is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from tests.cluster.conftest import warnings_of
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("logging").getOrCreate()
sc = spark.sparkContext
{line}
assert sc.parallelize(range(1000), 4).map(lambda n: n * n).sum() == 332833500
spark.stop()
"""
QUIET = """
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = HOUSE [%-5p] %c{1} - %m%n
"""
OFF = 'sc._jvm.org.apache.logging.log4j.core.config.Configurator.setLevel("org.apache.spark", level)'
LEVEL = "level = sc._jvm.org.apache.logging.log4j.Level.OFF"
WAYS = {
    "script": ((), 'sc.setLogLevel("ERROR")'),
    "setting": (("--conf", "spark.log.level=WARN"), ""),
    "executors too": (("--conf", "spark.log.level=WARN", "--conf", "spark.executor.syncLogLevel.enabled=true"), ""),
    "logger": ((), f"{LEVEL}; {OFF}"),
    "log4j 1": (
        (),
        'sc._jvm.org.apache.log4j.LogManager.getLogger("org").setLevel(sc._jvm.org.apache.log4j.Level.OFF)',
    ),
    "driver's file": (("--driver-java-options", "-Dlog4j2.configurationFile=file:QUIET"), ""),
    "executors' file": (
        ("--files", "QUIET", "--conf", "spark.executor.extraJavaOptions=-Dlog4j2.configurationFile=quiet.properties"),
        "",
    ),
    "shipped file": (("--files", "QUIET#log4j2.properties"), ""),
    "JSON": (("--conf", "spark.log.structuredLogging.enabled=true"), ""),
}


@pytest.mark.parametrize(
    ("way", "mode"),
    [*((way, "client") for way in WAYS), *((way, "cluster") for way in ("script", "driver's file", "shipped file"))],
)
def test_the_breakdown_does_not_depend_on_the_users_logging(dlobd, tmp_path: Path, way: str, mode: str) -> None:
    options, line = WAYS[way]
    (tmp_path / "job.py").write_text(SCRIPT.format(line=line))
    (tmp_path / "quiet.properties").write_text(QUIET)
    words = [word.replace("QUIET", str(tmp_path / "quiet.properties")) for word in options]
    ended = dlobd(
        *("submit", "--out", str(dlobd.out), "--", "spark-submit", "--deploy-mode", mode, *words),
        str(tmp_path / "job.py"),
        within_s=280,
    )
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    assert warnings_of(ended.bundle.read_json()) == []
    logs = ended.bundle.logs
    masters = sorted((logs / "containers").glob("*_000001/stderr"))
    seen = (masters[0] if mode == "cluster" else logs / "driver.stderr").read_text()
    if way in ("script", "setting", "driver's file") and not (way == "driver's file" and mode == "cluster"):
        assert "Got job 0 " not in seen
    if way == "shipped file":
        executors = sorted((logs / "containers").glob("*_000002/stderr"))
        assert not log4j.read(executors[0])
        assert "Running task" not in executors[0].read_text()


EVENTS = {
    "compressed": ("spark.eventLog.compress=true",),
    "another codec": ("spark.eventLog.compress=true", "spark.eventLog.compression.codec=lz4"),
    "rolling": ("spark.eventLog.rolling.enabled=true", "spark.eventLog.rolling.maxFileSize=10m"),
    "rolling, compressed": ("spark.eventLog.rolling.enabled=true", "spark.eventLog.compress=true"),
    "elsewhere": ("spark.eventLog.dir=file:HISTORY",),
    "a plain path is on this machine": ("spark.eventLog.dir=HISTORY",),
}


@pytest.mark.parametrize(("way", "mode"), [*((way, "client") for way in EVENTS), ("rolling, compressed", "cluster")])
def test_the_event_log_is_read_as_spark_wrote_it(dlobd, tmp_path: Path, way: str, mode: str) -> None:
    (tmp_path / "job.py").write_text(SCRIPT.format(line=""))
    history = tmp_path / "history"
    history.mkdir()
    words = [word for pair in EVENTS[way] for word in ("--conf", pair.replace("HISTORY", str(history)))]
    line = ("spark-submit", "--deploy-mode", mode, *words, str(tmp_path / "job.py"))
    ended = dlobd("submit", "--out", str(dlobd.out), "--", *line, within_s=280)
    assert ended.code == 0, ended.err
    assert warnings_of(ended.bundle.read_json()) == []
    assert sum(task.ok for task in Evidence(ended.bundle.path).event_log.tasks) == 4


def test_an_event_log_that_the_job_switched_off_is_named(dlobd, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT.format(line=""))
    line = ("spark-submit", "--conf", "spark.eventLog.enabled=false", str(tmp_path / "job.py"))
    ended = dlobd("submit", "--out", str(dlobd.out), "--", *line, within_s=280)
    assert ended.code == 0, ended.err
    (warned,) = warnings_of(ended.bundle.read_json())
    assert "event log: the job switched it off; omit spark.eventLog.enabled=false" in warned
