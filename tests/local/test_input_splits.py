"""How Spark splits training files of several HDFS blocks, and what it hands over of them, with a real Spark and the
file system of this machine."""

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
BATCH = 10
SPLITS = """
import json, sys
from types import SimpleNamespace
from pyspark import SparkConf, SparkContext
from dlobd.job.training.driver import _blocks
directory, record_bytes, batch, workers = sys.argv[1], *map(int, sys.argv[2:5])
settings = json.loads(sys.argv[5])
conf = SparkConf().setMaster("local[1]").setAppName("splits").setAll(settings.items())
# a block of this machine's file system is what it is told to be
conf.setAll({"spark.ui.enabled": "false", "spark.hadoop.fs.local.block.size": str(1 << 20)}.items())
sc = SparkContext(conf=conf)
try:
    layout = SimpleNamespace(record_bytes=record_bytes)
    job = SimpleNamespace(fs_uri="file://", train_dir=directory, batch_size=batch, layout=layout, workers=workers)
    numbers = lambda block: [int.from_bytes(block[at:at + 4], "big") for at in range(0, len(block), record_bytes)]
    print(json.dumps(_blocks(sc, job).map(numbers).glom().collect()))
finally:
    sc.stop()
"""


def splits(directory: Path, workers: int, settings: dict[str, str]) -> list[list[list[int]]]:
    """The numbers of the records in each block of each partition."""
    for file in range(3):
        numbers = range(file * RECORDS, (file + 1) * RECORDS)
        data = b"".join(number.to_bytes(4, "big").ljust(RECORD_BYTES, b".") for number in numbers)
        (directory / f"part-{file:05d}.tfrecord").write_bytes(data)
    told = map(str, (RECORD_BYTES, BATCH, workers))
    command = [sys.executable, "-c", SPLITS, str(directory), *told, json.dumps(settings)]
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[list[int]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_file_of_several_blocks_is_one_partition_of_batches(tmp_path: Path) -> None:
    """Rank r gets file r, whole and in order; what Spark hands over is a batch at a time, also where one lies on the
    border of two HDFS blocks."""
    found = splits(tmp_path, 3, ONE_SPLIT_A_FILE)
    starts = [range(file * RECORDS, (file + 1) * RECORDS, BATCH) for file in range(3)]
    assert found == [[list(range(start, start + BATCH)) for start in file] for file in starts]


def test_without_the_setting_each_block_would_be_a_partition(tmp_path: Path) -> None:
    """That is what the setting is for: the blocks of these files are real to Spark."""
    assert len(splits(tmp_path, 9, {})) == 9
