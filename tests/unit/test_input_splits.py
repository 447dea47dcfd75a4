"""How Spark splits training files of several blocks, with a real Spark and the file system of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlobd.hadoop.embedded.java import find_java
from dlobd.job.training.driver import ONE_SPLIT_A_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # a JVM each, on a machine that may be busy

RECORD_BYTES = 1_000
RECORDS = 2_600
SPLITS = """
import json, sys
from pyspark import SparkConf, SparkContext
directory, record_bytes, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
conf = SparkConf().setMaster("local[1]").setAppName("splits").setAll(settings.items())
# a block of this machine's file system is what it is told to be
conf.setAll({"spark.ui.enabled": "false", "spark.hadoop.fs.local.block.size": str(1 << 20)}.items())
sc = SparkContext(conf=conf)
try:
    records = sc.binaryRecords(f"file://{directory}", record_bytes)
    print(json.dumps(records.map(lambda record: int.from_bytes(record[:4], "big")).glom().collect()))
finally:
    sc.stop()
"""


def splits(directory: Path, settings: dict[str, str]) -> list[list[int]]:
    """The numbers of the records in each partition."""
    for file in range(3):
        numbers = range(file * RECORDS, (file + 1) * RECORDS)
        data = b"".join(number.to_bytes(4, "big").ljust(RECORD_BYTES, b".") for number in numbers)
        (directory / f"part-{file:05d}.tfrecord").write_bytes(data)
    command = [sys.executable, "-c", SPLITS, str(directory), str(RECORD_BYTES), json.dumps(settings)]
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_file_of_several_blocks_is_one_partition(tmp_path: Path) -> None:
    """Its records are in their order, and files in the order of their names: rank r gets file r, whole."""
    found = splits(tmp_path, ONE_SPLIT_A_FILE)
    assert found == [list(range(file * RECORDS, (file + 1) * RECORDS)) for file in range(3)]


def test_without_the_setting_each_block_would_be_a_partition(tmp_path: Path) -> None:
    """That is what the setting is for: the blocks of these files are real to Spark."""
    assert len(splits(tmp_path, {})) == 9
