"""A user's packages and Python on a real cluster: in the driver and in Python workers, here and on other nodes."""

from __future__ import annotations

import json
import venv

import pytest

from dlobd.hadoop.webhdfs import Client
from tests.cluster.test_own_job import FOREIGN
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

MODES = pytest.mark.parametrize("mode", ["client", "cluster"])

UDF = """
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

spark = SparkSession.builder.getOrCreate()

@pandas_udf("long")
def next_number(numbers: pd.Series) -> pd.Series:
    return numbers + 1

total = spark.range(100, numPartitions=2).select(next_number("id").alias("n")).agg({"n": "sum"}).collect()[0][0]
assert total == 5050, total
"""

TEXT = """
import json, sys
from pyspark import SparkContext

def known(rows):
    import xmltodict
    packages = {name.partition(".")[0] for name in sys.modules} & {"numpy", "tensorflow", "dlobd"}
    return [[sys.executable, sorted(packages), xmltodict.parse("<a>1</a>")["a"]]]

sc = SparkContext()
print(json.dumps([sys.executable, *sc.parallelize(range(2), 2).mapPartitions(known).collect()]))
sc.stop()
"""


def printed(bundle) -> list[object]:
    outputs = [bundle.logs / "driver.stdout", *(bundle.logs / "containers").glob("*_000001/stdout")]
    return json.loads([line for path in outputs if path.exists() for line in path.read_text().splitlines()][-1])


def test_the_parts_of_tasks_in_python_workers(dlobd) -> None:
    """RDD, UDF, pandas UDF, mapInPandas and applyInPandas: the seconds of the functions are those that the script
    counts, PySpark's own times agree, and long rows cost serialisation and transfer, which are Spark's time."""
    job = str(FOREIGN / "python_parts.py")
    packages = ("--with", "pandas", "--with", "pyarrow")
    ended = dlobd("run", "--job", job, *packages, "--out", str(dlobd.out), "--", "2", "80", within_s=590)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    record, counted_s = ended.bundle.read_json(), printed(ended.bundle)
    work = {name: [one for one in record["python_work"] if one["evaluation"] == name] for name in counted_s}
    rdd = work.pop("NON_UDF")
    for name, (one,) in work.items():
        assert one["function"] == ("sampled" if name == "SQL_BATCHED_UDF" else "measured")
        assert one["function_ns"] / 1e9 == pytest.approx(counted_s[name], rel=0.03, abs=0.05)
    rows, partitions, *_ = sorted(rdd, key=lambda one: int(one["stage"]))
    assert [one["function"] for one in (rows, partitions)] == ["sampled", "unknown"]
    both_s = (rows["function_ns"] + partitions["function_and_loop_ns"]) / 1e9
    assert both_s == pytest.approx(counted_s["NON_UDF"], rel=0.03, abs=0.05)
    last = max(rdd, key=lambda one: int(one["stage"]))
    assert last["function_ns"] < 0.1 * last["serialise_ns"] < last["ns"]
    for one in record["python_work"]:
        parts = one["function_and_loop_ns"] + one["serialise_ns"] + one["read_ns"] + one["write_ns"]
        assert parts == one["ns"]
    (check,) = [row for row in record["checks"] if row["code"] == "python-times"]
    assert check["verdict"] == "pass"
    names = {name for layer in record["layers"] if layer["layer"] == "spark" for name, _ in layer["names"]}
    assert names >= {"read rows from JVM", "write rows to JVM", "serialise and deserialise rows"}


@MODES
def test_a_pandas_udf_needs_pyarrow(dlobd, tmp_path, mode) -> None:
    (tmp_path / "udf.py").write_text(UDF)
    line = ("--out", str(dlobd.out), "--", "spark-submit", "--deploy-mode", mode, str(tmp_path / "udf.py"))
    ended = dlobd("submit", *line)
    assert ended.code == 5
    assert "[PACKAGE_NOT_INSTALLED] PyArrow" in ended.line
    assert ended.line.endswith("; --with pyarrow adds it")
    ended = dlobd("submit", "--with", "pyarrow", *line, within_s=390)
    assert ended.code == 0, ended.err
    explained(ended.bundle)
    assert "pyarrow" in ended.bundle.read_json()["versions"]


@pytest.mark.parametrize("scheduler", ["yarn", "standalone", "local-cluster"])
def test_another_python_of_this_machine(dlobd, tmp_path, scheduler) -> None:
    """It has no package at all; dlobd's recorder and PySpark work in it, on the driver and in Python workers."""
    venv.create(tmp_path / "other", with_pip=False)
    python = str(tmp_path / "other" / "bin" / "python")
    (tmp_path / "text.py").write_text(TEXT)
    words = ("--python", python, "--with", "xmltodict", "--set", f"scheduler={scheduler}", "--out", str(dlobd.out))
    ended = dlobd("run", "--job", str(tmp_path / "text.py"), *words, within_s=390)
    assert ended.code == 0, ended.err
    assert printed(ended.bundle) == [python, *[[python, ["dlobd"], "1"]] * 2]
    assert explained(ended.bundle)["user"] > 0
    assert [warning for warning in ended.bundle.read_json()["warnings"] if warning.startswith("missing: ")] == []


@MODES
def test_nodes_get_the_packages_once(shared_cluster, alone, tmp_path, mode) -> None:
    """From HDFS, beside an interpreter of the nodes: the packed environment is not uploaded."""
    venv.create(tmp_path / "other", with_pip=False)
    python = str(tmp_path / "other" / "bin" / "python")
    (tmp_path / "text.py").write_text(TEXT)
    there = ("--hadoop-conf", str(shared_cluster.client_conf_dir), "--set", f"deploy_mode={mode}")
    words = ("--python", python, "--with", "xmltodict", *there, "--out", str(alone.out))
    for attempt in range(2):
        ended = alone("run", "--job", str(tmp_path / "text.py"), *words, within_s=400)
        assert ended.code == 0, ended.err
        assert printed(ended.bundle)[1:] == [[python, ["dlobd"], "1"]] * 2
        explained(ended.bundle)
        assert attempt == 0 or "uploading " not in ended.err
    client = Client(shared_cluster.endpoints.webhdfs_url, shared_cluster.user, timed=False)
    assert [name for name in client.list(f"/user/{shared_cluster.user}/dlobd/cache") if name.startswith("packages-")]
    for container in (ended.bundle.logs / "containers").glob("*_00000[23]"):
        assert "./packages" in (container / "launch_container.sh").read_text()


WITHOUT_SPARK = "Your script never started a SparkContext, so there is nothing to break down"


@MODES
@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("raise SystemExit", None, WITHOUT_SPARK),
        ("import os; os._exit(9)", 5, "the script exited with code 9"),
        ("import os; os.kill(os.getpid(), 9)", 5, "the driver's Python was killed by signal 9 (SIGKILL)"),
        ("for _ in range(10 ** 6): print('x' * 1000)\nraise KeyError(7)", 5, "KeyError: 7"),
    ],
)
def test_a_script_that_ends_in_its_first_line(dlobd, tmp_path, mode, text, code, reason) -> None:
    (tmp_path / "bad.py").write_text(f"{text}\n")
    ended = dlobd("run", "--job", str(tmp_path / "bad.py"), "--set", f"deploy_mode={mode}", "--out", str(dlobd.out))
    # in cluster mode YARN expects a SparkContext: the application fails
    assert ended.code == (code or (6 if mode == "client" else 5))
    assert ended.line.endswith(reason)
