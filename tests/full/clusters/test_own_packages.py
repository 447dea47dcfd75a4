"""A user's packages and Python on a real cluster: in the driver and in Python workers, here and on other nodes."""

from __future__ import annotations

import json
import venv

import pytest

from dlobd.hadoop.webhdfs import connect
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

MODES = ["client", "cluster"]

UDF = """
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

@pandas_udf("long")
def next_number(numbers: pd.Series) -> pd.Series:
    return numbers + 1

spark = SparkSession.builder.getOrCreate()
total = spark.range(100, numPartitions=2).select(next_number("id").alias("n")).agg({"n": "sum"}).collect()[0][0]
assert total == 5050, total
spark.stop()
"""

TEXT = """
import json, sys
from pyspark import SparkContext

def known(rows):
    import xmltodict
    packages = {name.partition(".")[0] for name in sys.modules} & {"numpy", "tensorflow", "dlobd"}
    return [[sys.executable, sorted(packages), xmltodict.parse("<a>1</a>")["a"]]]

sc = SparkContext()
found = sc.parallelize(range(2), 2).mapPartitions(known).collect()
print(json.dumps([sys.executable, *found[0]]))
assert found[0] == found[1]
sc.stop()
"""


def printed(bundle) -> str:
    outputs = [bundle.logs / "driver.stdout", *(bundle.logs / "containers").glob("*_000001/stdout")]
    return "".join(path.read_text() for path in outputs if path.exists())


@pytest.mark.parametrize("mode", MODES)
def test_a_pandas_udf_without_pyarrow_names_the_option(dlobd, tmp_path, mode) -> None:
    (tmp_path / "udf.py").write_text(UDF)
    ended = dlobd("run", "--job", str(tmp_path / "udf.py"), "--set", f"deploy_mode={mode}", "--out", str(dlobd.out))
    assert ended.code == 5
    assert "[PACKAGE_NOT_INSTALLED] PyArrow" in ended.line
    assert ended.line.endswith("; --with pyarrow adds it")


@pytest.mark.parametrize("mode", MODES)
def test_a_pandas_udf_with_pyarrow(dlobd, tmp_path, mode) -> None:
    (tmp_path / "udf.py").write_text(UDF)
    words = ("--with", "pyarrow", "--out", str(dlobd.out), "--")
    ended = dlobd("submit", *words, "spark-submit", "--deploy-mode", mode, str(tmp_path / "udf.py"), within_s=390)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    run = ended.bundle.read_json()
    assert run["configuration"]["packages"] == ["pyarrow"]
    assert "pyarrow" in run["versions"]


@pytest.mark.parametrize("scheduler", ["yarn", "standalone", "local-cluster"])
def test_another_python_of_this_machine(dlobd, tmp_path, scheduler) -> None:
    """It has no package at all; dlobd's recorder and PySpark work in it, on the driver and in Python workers."""
    venv.create(tmp_path / "other", with_pip=False)
    python = str(tmp_path / "other" / "bin" / "python")
    (tmp_path / "text.py").write_text(TEXT)
    words = ("--python", python, "--with", "xmltodict", "--set", f"scheduler={scheduler}", "--out", str(dlobd.out))
    ended = dlobd("run", "--job", str(tmp_path / "text.py"), *words, within_s=390)
    assert ended.code == 0, ended.err
    assert json.loads(printed(ended.bundle).splitlines()[-1]) == [python, python, ["dlobd"], "1"]
    layers = explained(ended.bundle)
    assert layers["user"] > 0
    assert [warning for warning in ended.bundle.read_json()["warnings"] if warning.startswith("missing: ")] == []


@pytest.mark.parametrize("mode", MODES)
def test_nodes_get_the_packages_once(shared_cluster, alone, tmp_path, mode) -> None:
    """From HDFS, beside an interpreter of the nodes: the packed environment is not uploaded."""
    (tmp_path / "text.py").write_text(TEXT)
    venv.create(tmp_path / "other", with_pip=False)
    python = str(tmp_path / "other" / "bin" / "python")
    conf = str(shared_cluster.client_conf_dir)
    there = ("--hadoop-conf", conf, "--set", f"deploy_mode={mode}", "--set", "accept_timeout_s=600")
    words = ("--python", python, "--with", "xmltodict", *there, "--out", str(alone.out))
    for uploads in (True, False):
        ended = alone("run", "--job", str(tmp_path / "text.py"), *words, within_s=800)
        assert ended.code == 0, ended.err
        assert json.loads(printed(ended.bundle).splitlines()[-1])[1:] == [python, ["dlobd"], "1"]
        explained(ended.bundle)
        assert uploads or "uploading " not in ended.err
    client = connect(shared_cluster.webhdfs_url, shared_cluster.user, timed=False)
    names = client.list(f"/user/{shared_cluster.user}/dlobd/cache")
    assert [name for name in names if name.startswith("packages-")]
    for container in (ended.bundle.logs / "containers").iterdir():
        lines = (container / "launch_container.sh").read_text().splitlines()
        found = [line for line in lines if line.startswith("export PYTHONPATH=") and "./packages" in line]
        assert found or container.name.endswith("_000001")  # in client mode the ApplicationMaster runs no Python


def test_what_contradicts_spark_is_refused_before_anything_starts(dlobd, tmp_path) -> None:
    (tmp_path / "text.py").write_text(TEXT)
    ended = dlobd("run", "--job", str(tmp_path / "text.py"), "--with", "pyspark<4", "--out", str(dlobd.out / "none"))
    assert ended.code == 2
    assert "pyspark<4 and pyspark==" in ended.line
    assert not (dlobd.out / "none").exists()
