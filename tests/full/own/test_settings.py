"""Settings of the user and of its shell on a real cluster: each counts, and proxies do not reach the cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlobd.bundle.store import Bundle
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

WORDS = str(Path(__file__).parents[2] / "foreign" / "word_count.py")

PROXIES = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
PROXIES |= {"all_proxy": "socks5://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
"""A proxy for all servers, which does not answer."""

SCRIPT = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("="))
spark = builder.getOrCreate()
assert spark.range(100).count() == 100
print("overhead:", spark.sparkContext.getConf().get("spark.executor.memoryOverhead"))
"""

OLD = "spark.yarn.executor.memoryOverhead=700"


def containers_mb(bundle: Bundle) -> set[int]:
    """The memory that the ApplicationMaster asks for, per executor."""
    logs = "".join(path.read_text() for path in bundle.logs.glob("containers/*_000001/stderr"))
    return {int(size) for size in re.findall(r"each with \d+ core\(s\) and (\d+) MB memory", logs)}


@pytest.mark.parametrize(
    ("line", "file", "environment", "overhead_mb"),
    [
        (("--conf", OLD), "", {}, 700),
        (("--conf", "spark.executor.memoryOverheadFactor=0.9"), "", {}, 540),
        ((), OLD, {}, 700),
        ((), "", {"SPARK_SUBMIT_OPTS": f"-D{OLD}"}, 700),
    ],
    ids=["deprecated name", "factor", "spark-defaults.conf", "variable"],
)
def test_executors_have_the_overhead_of_the_user(dlobd, tmp_path, line, file, environment, overhead_mb) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "spark-defaults.conf").write_text(f"{file}\n")
    words = ("spark-submit", "--executor-memory", "600m", *line, str(tmp_path / "job.py"))
    shell = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": "/usr/bin/python", **environment}
    ended = dlobd("submit", "--out", str(dlobd.out), "--", *words, **shell)
    assert ended.code == 0, ended.err
    assert "dlobd ignores PYSPARK_PYTHON=/usr/bin/python: " in ended.err
    assert containers_mb(ended.bundle) == {600 + overhead_mb}
    assert ended.bundle.read_json()["configuration"]["executor_overhead_mb"] == overhead_mb
    explained(ended.bundle)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_deprecated_name_in_the_script_counts(dlobd, tmp_path, mode) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    words = ("--set", f"deploy_mode={mode}", "--set", "executor_memory_mb=600", "--out", str(dlobd.out), "--", OLD)
    ended = dlobd("run", "--job", str(tmp_path / "job.py"), *words)
    assert ended.code == 0, ended.err
    assert containers_mb(ended.bundle) == {1300}


def test_a_python_of_the_script_is_refused_by_its_name(dlobd, tmp_path) -> None:
    (tmp_path / "job.py").write_text(f"import os\nos.environ['PYSPARK_PYTHON'] = './more/bin/python'\n{SCRIPT}")
    ended = dlobd("run", "--job", str(tmp_path / "job.py"), "--out", str(dlobd.out))
    assert ended.code == 5
    assert "PYSPARK_PYTHON=./more/bin/python in the script is not supported" in ended.line


@pytest.mark.parametrize("file", [False, True])
def test_the_window_lasts_until_the_application_ends(dlobd, tmp_path, file) -> None:
    """Though the line, or spark-defaults.conf, says that spark-submit does not wait."""
    setting = "spark.yarn.submit.waitAppCompletion=false"
    done = tmp_path / "done"
    (tmp_path / "job.py").write_text(
        f"import pathlib, time\n{SCRIPT}\ntime.sleep(20)\npathlib.Path({str(done)!r}).touch()\nspark.stop()\n"
    )
    (tmp_path / "spark-defaults.conf").write_text(f"{setting}\n" if file else "")
    words = ("--deploy-mode", "cluster", *(() if file else ("--conf", setting)), str(tmp_path / "job.py"))
    ended = dlobd("submit", "--out", str(dlobd.out), "--", "spark-submit", *words, SPARK_CONF_DIR=str(tmp_path))
    assert ended.code == 0, ended.err
    assert f"dlobd overrides {setting}" in ended.err
    assert done.exists()
    assert ended.bundle.read_json()["wall_ns"] > 20_000_000_000
    explained(ended.bundle)


@pytest.mark.parametrize("way", ["own", "tfos", "native", "standalone", "executors"])
def test_a_cluster_is_reached_without_the_proxy(dlobd, way) -> None:
    """Of the shell, or of the executors alone."""
    if way == "own":
        ended = dlobd("run", "--job", WORDS, "--out", str(dlobd.out), "--", "400", **PROXIES)
    elif way == "executors":
        options = [
            word for name, url in PROXIES.items() for word in ("--conf", f"spark.executorEnv.{name}={url}") if url
        ]
        job = str(Path(WORDS).with_name("mwms.py"))
        ended = dlobd("submit", "--out", str(dlobd.out), "--", "spark-submit", *options, job, "--steps", "20")
    else:
        settings = {"native": ("launcher=native",), "standalone": ("scheduler=standalone", "launcher=barrier")}
        ended = dlobd.run(*settings.get(way, ()), **PROXIES)
    assert ended.code == 0, ended.err
    explained(ended.bundle)


def test_a_configuration_that_only_includes_others_names_the_cluster(dlobd, shared_cluster, tmp_path) -> None:
    """The three files in another directory, whose name has a space; YARN's file is the fallback of a missing one."""
    central = tmp_path / "all clusters"
    central.symlink_to(shared_cluster.client_conf_dir)
    conf = tmp_path / "conf"
    conf.mkdir()
    for site in ("core-site.xml", "hdfs-site.xml", "yarn-site.xml"):
        href = f'<xi:include href="../all clusters/{site}"/>'
        if site.startswith("yarn"):
            href = f'<xi:include href="gone.xml"><xi:fallback>{href}</xi:fallback></xi:include>'
        head = '<configuration xmlns:xi="http://www.w3.org/2001/XInclude">'
        (conf / site).write_text(f'<?xml version="1.0"?>\n{head}{href}</configuration>\n')
    ended = dlobd("doctor", "--hadoop-conf", str(conf))
    assert ended.code == 0, ended.out + ended.err
    (conf / "hdfs-site.xml").write_text((conf / "hdfs-site.xml").read_text().replace("all clusters", "no cluster"))
    ended = dlobd("doctor", "--hadoop-conf", str(conf))
    assert "hdfs-site.xml includes ../no cluster/hdfs-site.xml, which does not exist" in ended.out + ended.err
