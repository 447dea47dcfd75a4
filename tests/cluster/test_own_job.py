"""A person's own script on the cluster: unchanged, with the breakdown. More of them are in tests/full/own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

FOREIGN = Path(__file__).parents[1] / "foreign"


def test_a_spark_submit_line_runs_as_it_is(dlobd) -> None:
    """Plain PySpark, RDD and DataFrame with a UDF: it ends well, the parts sum exactly and are explained."""
    line = (
        "spark-submit",
        "--name",
        "words",
        "--conf",
        "spark.sql.shuffle.partitions=2",
        str(FOREIGN / "word_count.py"),
    )
    ended = dlobd("submit", "--out", str(dlobd.out), "--", *line, "400", within_s=280)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert layers["user"] > 0
    assert layers["yarn"] > 0
    assert "('BROWN', 400)" in (ended.bundle.logs / "driver.stdout").read_text().replace("Row(word=", "(").replace(
        "sum(n)=", ""
    )
    record = ended.bundle.read_json()
    assert record["configuration"]["options"] == list(line[1:-1])
    assert "spark.sql.shuffle.partitions=2" in record["command"]
    (hidden,) = [row for row in record["not_measured"] if row["layer"] == "hdfs"]
    assert hidden["inside"] == "user"


def test_a_script_that_never_asks_for_spark_has_a_breakdown(dlobd, tmp_path) -> None:
    script = tmp_path / "no_spark.py"
    script.write_text("import sys, time\ntime.sleep(1)\nsys.exit(3)\n")
    ended = dlobd("run", "--job", str(script), "--out", str(dlobd.out))
    assert ended.code == 5
    assert ended.line == "dlobd: run failed: the script exited with code 3"
    record = ended.bundle.read_json()
    layers = {row["layer"]: row["ns"] for row in record["layers"]}
    assert sum(layers.values()) + record["unattributed_ns"] == record["wall_ns"]
    assert layers["user"] >= 1_000_000_000
    assert record["unattributed_ns"] <= 0.05 * record["wall_ns"]


def test_a_script_that_is_not_there(dlobd) -> None:
    ended = dlobd("run", "--job", "nowhere.py", "--out", str(dlobd.out))
    assert ended.code == 2
    assert "script nowhere.py cannot be read: No such file or directory." in ended.line
    assert dlobd.bundles() == []
