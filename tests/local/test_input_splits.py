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
directory, record_bytes, batch = sys.argv[1], *map(int, sys.argv[2:4])
numbers = lambda block: [int.from_bytes(block[at:at + 4], "big") for at in range(0, len(block), record_bytes)]
for workers, settings in json.loads(sys.argv[4]):
    conf = SparkConf().setMaster("local[1]").setAppName("splits").setAll(settings.items())
    # a block of this machine's file system is what it is told to be
    conf.setAll({"spark.ui.enabled": "false", "spark.hadoop.fs.local.block.size": str(1 << 20)}.items())
    sc = SparkContext(conf=conf)
    try:
        layout = SimpleNamespace(record_bytes=record_bytes)
        job = SimpleNamespace(fs_uri="file://", train_dir=directory, batch_size=batch, layout=layout, workers=workers)
        print(json.dumps(_blocks(sc, job).map(numbers).glom().collect()))
    finally:
        sc.stop()
"""


def test_a_file_of_several_blocks_is_one_partition_of_batches(tmp_path: Path) -> None:
    """Rank r gets file r in order, a batch at a time, also across the border of two HDFS blocks. Without the setting
    Spark would make a partition of each block."""
    for file in range(3):
        numbers = range(file * RECORDS, (file + 1) * RECORDS)
        data = b"".join(number.to_bytes(4, "big").ljust(RECORD_BYTES, b".") for number in numbers)
        (tmp_path / f"part-{file:05d}.tfrecord").write_bytes(data)
    ways = json.dumps([(9, {}), (3, ONE_SPLIT_A_FILE)])  # the settings of the first stay in the JVM
    command = [sys.executable, "-c", SPLITS, str(tmp_path), str(RECORD_BYTES), str(BATCH), ways]
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    without, found = map(json.loads, done.stdout.splitlines()[-2:])
    starts = [range(file * RECORDS, (file + 1) * RECORDS, BATCH) for file in range(3)]
    assert found == [[list(range(start, start + BATCH)) for start in file] for file in starts]
    assert len(without) == 9
