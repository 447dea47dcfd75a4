"""HDFS's own records: audit log, client trace, and refused closes, with real lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlobd.evidence import hdfs, log4j

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
    assert list(hdfs.audits(parsed(line))) == [hdfs.Audit(4947485023494, command, src, dst, "rpc")]
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


def test_a_refused_close_was_tried_again_when_the_namenode_says_so() -> None:
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
