"""Log lines, logs of JVMs, and HDFS's own records, with real lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.evidence import hdfs, jvm, log4j

FAILED_TASK = """\
5052106251625 2026-11-21T03:04:24.823 ERROR executor.Executor: Exception in task 3.0 in stage 1.0 (TID 5)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3416, in main
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:561)
Caused by: java.lang.RuntimeException: 2026-11-21T03:04:24.823 ERROR executor.Executor: not a line of its own
2026-11-21 03:04:19,005 INFO (MainThread-14073) node: {'executor_id': 0}
5052131759763 2026-11-21T03:04:24.848 INFO executor.YarnCoarseGrainedExecutorBackend: Got assigned task 6
"""

JVM = """\
[4954344961592ns][gc] Using G1
[4954346961592ns][gc,init] Version: 17.0.15+6 (release)
[4957475355059ns][gc     ] GC(9) Pause Young (Normal) (G1 Evacuation Pause) 84M->37M(117M) 22.925ms
[4961734496786ns][gc     ] GC(12) Pause Remark 42M->42M(117M) 18,458ms
[4961734496999ns][gc     ] GC(12) Concurrent Mark Cycle 30.000ms
[4970972024223ns][gc,heap,exit] Heap
[4970972057943ns][gc,heap,exit]   class space    used 7278K, committed 7616K, reserved 1048576K
"""


CREATED = """\
[15496319871838ns][startuptime] StubRoutines generation 1, 0.0002500 secs
[15496320871838ns][gc         ] Using G1
[15496421000163ns][startuptime] Create VM, 0.1402280 secs
"""

CONFIGURED = """\
WARNING: Using incubator modules: jdk.incubator.vector
2026-11-25T00:44:28.747257094Z main INFO Using provider:
Provider 'org.apache.logging.log4j.core.impl.Log4jProvider'
\tpriority = 10
\tloggerContextFactory = org.apache.logging.log4j.core.impl.Log4jContextFactory
2026-11-25T00:44:32.113649660Z main INFO Starting configuration org.apache...PropertiesConfiguration@c94fd30...
2026-11-25T00:44:32.129584525Z main INFO Configuration org.apache...PropertiesConfiguration@c94fd30 started.
2026-11-25T00:44:32.142342454Z main INFO Configuration org.apache...DefaultConfiguration@1530c739 stopped.
16301761662854 2026-11-25T00:44:42.027 INFO spark.SparkContext [Thread-4]: Running Spark version 4.3.0
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "log"
    path.write_text(text)
    return path


def test_only_whole_lines_of_the_pattern_are_lines(tmp_path: Path) -> None:
    lines = log4j.read(written(tmp_path, FAILED_TASK), "executor")
    assert [(line.at_ns, line.level, line.logger) for line in lines] == [
        (5052106251625, "ERROR", "executor.Executor"),
        (5052131759763, "INFO", "executor.YarnCoarseGrainedExecutorBackend"),
    ]
    assert lines[0].message == "Exception in task 3.0 in stage 1.0 (TID 5)"
    assert {line.source for line in lines} == {"executor"}
    text = "4952330364599 2026-11-21T03:02:45.047 INFO yarn.ApplicationMaster: \n4952330364599 2026-11-21T03:02:45.0"
    (line,) = log4j.read(written(tmp_path, text))
    assert (line.message, line.source) == ("", "log")
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\x00rubbish\n" + FAILED_TASK.encode())
    assert len(log4j.read(path)) == 2
    assert log4j.read(tmp_path / "none") == []
    assert jvm.read(tmp_path / "none") is None
    text = (
        "14690628862379 2026-11-25T00:17:50.894 INFO util.Utils [Executor task launch worker for task 0.0 (TID 0)]: a\n"
        "14690628862380 2026-11-25T00:17:50.894 INFO util.Utils: [main]: a\n"
    )
    lines = log4j.read(written(tmp_path, text), "executor")
    assert [line.thread for line in lines] == ["Executor task launch worker for task 0.0 (TID 0)", ""]
    assert [line.message for line in lines] == ["a", "[main]: a"]


def test_a_jvm_has_creation_start_exit_and_pauses(tmp_path: Path) -> None:
    life = jvm.read(written(tmp_path, JVM))
    assert (life.start_ns, life.exit_ns, life.created_ns) == (4954344961592, 4970972057943, None)
    assert life.gc_pause_ns == 22_925_000 + 18_458_000
    assert life.pauses == ((4957475355059 - 22_925_000, 4957475355059), (4961734496786 - 18_458_000, 4961734496786))
    life = jvm.read(written(tmp_path, JVM[: JVM.index("[4970972024223ns]")] + "[49709720"))
    assert (life.start_ns, life.exit_ns) == (4954344961592, None)
    assert jvm.read(written(tmp_path, "Error: Could not create the Java Virtual Machine.\n")) is None
    assert jvm.read(written(tmp_path, "")) is None
    life = jvm.read(written(tmp_path, CREATED))
    assert (life.start_ns, life.created_ns) == (15496421000163 - 140_228_000, 15496421000163)


def test_the_configuration_of_log4j_is_timed_where_it_is_logged(tmp_path: Path) -> None:
    found = log4j.configured(written(tmp_path, CONFIGURED))
    ahead_ns = 16301761662854 - 42_027_000_000
    assert found == (ahead_ns + 28_747_257_000, ahead_ns + 32_129_584_000)
    assert log4j.configured(written(tmp_path, FAILED_TASK)) is None
    assert log4j.configured(written(tmp_path, CONFIGURED.replace("started.", "failed."))) is None
    assert log4j.configured(tmp_path / "absent") is None


AUDIT = (
    "4947485023494 2026-11-21T03:02:40.202 INFO FSNamesystem.audit: allowed=true\tugi=dlobd (auth:SIMPLE)\t"
    "ip=/127.0.0.1\tcmd={command}\tsrc={src}\tdst={dst}\tperm=dlobd:supergroup:rwx------\tproto=rpc\n"
)
READ = (
    "4948715619794 2026-11-21T03:02:41.432 DEBUG DataNode.clienttrace: src: {src}, dest: {dest}, volume: , "
    "bytes: 3987928, op: HDFS_READ, cliID: DFSClient_NONMAPREDUCE_-1676773075_117, offset: 0, "
    "srvID: 594f0aa5-417f-4ab6-8d56-e9114fa955c8, "
    "blockid: BP-243020829-127.0.0.1-1795230145805:blk_1073741828_1004, duration(ns): 28141330\n"
)
RETRY = (
    "{at} 2026-11-21T03:02:56.217 INFO namenode.FSNamesystem: BLOCK* blk_1073741832_1008 is COMMITTED but not "
    "COMPLETE(numNodes= 0 <  minimum = 1) in file {path}\n"
)
CLOSED = (
    "{at} 2026-11-25T00:17:41.190 INFO hdfs.StateChange: DIR* completeFile: {path} is closed by "
    "DFSClient_NONMAPREDUCE_1287399143_19\n"
)


def parsed(*lines: str) -> Iterator[log4j.LogLine]:
    return log4j.parse("".join(lines).splitlines(keepends=True), "test")


@pytest.mark.parametrize(
    ("command", "src", "dst"),
    [
        ("rename", "/spark-events/a.inprogress", "/spark-events/a"),
        ("delete (options=[RECURSIVE])", "/my data/a dst=b/part 0", "null"),
    ],
)
def test_an_audited_path_may_hold_spaces_and_a_cut_line_is_left_out(command: str, src: str, dst: str) -> None:
    line = AUDIT.format(command=command, src=src, dst=dst)
    assert list(hdfs.audits(parsed(line))) == [hdfs.Audit(4947485023494, command, src)]
    assert list(hdfs.audits(parsed(line[: line.index("\tdst=")]))) == []


@pytest.mark.parametrize(
    ("src", "dest"), [("/127.0.0.1:23172", "/127.0.0.1:40504"), ("/[0:0:0:0:0:0:0:1]:23172", "/[::1]:40504")]
)
def test_a_transfer_ends_when_it_is_logged(src: str, dest: str) -> None:
    (transfer,) = hdfs.transfers(parsed(READ.format(src=src, dest=dest)))
    assert (transfer.operation, transfer.bytes, transfer.block) == ("HDFS_READ", 3987928, "blk_1073741828")
    assert transfer.client == "DFSClient_NONMAPREDUCE_-1676773075_117"
    assert (transfer.end_ns, transfer.end_ns - transfer.start_ns) == (4948715619794, 28141330)


def test_other_lines_of_a_datanode_are_no_transfers() -> None:
    line = (
        "4948715619794 2026-11-21T03:02:41.432 INFO DataNode.clienttrace: src: 127.0.0.1, dest: 127.0.0.1, "
        "op: REQUEST_SHORT_CIRCUIT_FDS, blockid: 1073741828, srvID: 594f, success: true\n"
    )
    assert list(hdfs.transfers(parsed(line))) == []


def test_each_refused_close_doubles_its_sleep() -> None:
    """The client sleeps 0.4 s, then 0.8 s; another file begins anew."""
    tries = ((4_963_500_121_959, "/a b"), (4_963_904_000_000, "/a b"), (4_963_905_000_000, "/c"))
    found = list(hdfs.close_retries(parsed(*(RETRY.format(at=at_ns, path=path) for at_ns, path in tries))))
    assert [retry.delay_ns for retry in found] == [400_000_000, 800_000_000, 400_000_000]
    assert [retry.path for retry in found][2] == "/c"
    assert [retry.next_ns for retry in found] == [4_963_904_000_000, None, None]


def test_the_retry_of_a_refused_close_is_in_the_namenode_log() -> None:
    found = list(
        hdfs.close_retries(
            parsed(
                RETRY.format(at=14680520818665, path="/user/dlobd/.sparkStaging/pyspark.zip"),
                CLOSED.format(at=14680925037381, path="/user/dlobd/.sparkStaging/pyspark.zip"),
                RETRY.format(at=14680993583503, path="/a"),
                CLOSED.format(at=14681093583503, path="/a"),
            )
        )
    )
    assert [(retry.next_ns, retry.delay_ns) for retry in found] == [
        (14680925037381, 400_000_000),
        (14681093583503, 100_000_000),
    ]
