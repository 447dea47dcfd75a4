"""Calls of Hadoop's RPC clients, with real lines: daemon, thread, start and end."""

from __future__ import annotations

from dlobd import spans as kinds
from dlobd.evidence import log4j, rpc
from dlobd.evidence.feed import without_reads
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.rpc import Call
from dlobd.schema import Process
from dlobd.timeline import builder
from dlobd.timeline.builder import LaneBuilder

DRIVER = """\
16522441757635 2026-11-25T00:48:22.707 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> /127.0.0.1:11538: getNewApplication 
16523095361286 2026-11-25T00:48:23.361 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Response <- localhost/127.0.0.1:11538: getNewApplication 
16523097784364 2026-11-25T00:48:23.363 INFO yarn.Client [Thread-4]: Application ID is assigned: application_1_0001
16527397156649 2026-11-25T00:48:27.662 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> localhost/127.0.0.1:11528: create "/user/a b/pyspark.zip"
16527620346376 2026-11-25T00:48:27.886 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Response <- localhost/127.0.0.1:11528: create 
16528141921202 2026-11-25T00:48:28.407 TRACE ipc.ProtobufRpcEngine2 [Thread-11]: 58: Call -> localhost/127.0.0.1:11528: addBlock "/user/a b/pyspark.zip"
16528241921202 2026-11-25T00:48:28.507 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> localhost/127.0.0.1:11528: getBlockLocations "/gone"
16528346204339 2026-11-25T00:48:28.612 TRACE ipc.ProtobufRpcEngine2 [Thread-11]: 58: Response <- localhost/127.0.0.1:11528: addBlock 
16528446204339 2026-11-25T00:48:28.712 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Exception <- localhost/127.0.0.1:11528: getBlockLocations 
16528546204339 2026-11-25T00:48:28.812 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> localhost/127.0.0.1:11528: getDelegationToken 
16528646204339 2026-11-25T00:48:28.912 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Response <- localhost/127.0.0.1:11528: getDelegationToken 
16549646204339 2026-11-25T00:48:49.912 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> localhost/127.0.0.1:11528: mkdirs "/a"
"""  # noqa: E501, W291  as they were written

POLLS = """\
16546907073717 2026-11-25T00:48:47.172 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> localhost/127.0.0.1:11538: getApplicationReport 
16546912882073 2026-11-25T00:48:47.178 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Response <- localhost/127.0.0.1:11538: getApplicationReport 
16547913782582 2026-11-25T00:48:48.179 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Call -> localhost/127.0.0.1:11538: getApplicationReport 
16547918444291 2026-11-25T00:48:48.184 TRACE ipc.ProtobufRpcEngine2 [Thread-4]: 19: Response <- localhost/127.0.0.1:11538: getApplicationReport 
"""  # noqa: E501, W291


def calls(text: str) -> list[Call]:
    return rpc.calls(log4j.parse(text.splitlines(keepends=True), "driver"))


def lane_of(text: str, waits: tuple[int, int, int | None] | None = None) -> list[tuple[str, str, int, int]]:
    lane = LaneBuilder("driver", Process("host", "driver", 0, 0))
    if waits:
        lane.add(kinds.WAIT_FOR_AM, waits[0], waits[1], "test", waits_for=("application",), released_ns=waits[2])
    builder.place_calls(lane, [call for call in calls(text) if call.thread == "Thread-4"], "driver log")
    return [(s.layer, s.name, s.start_ns, s.end_ns) for s in lane.spans if s.kind is not kinds.WAIT_FOR_AM]


def test_each_container_has_the_call_that_started_it() -> None:
    first, second, third = (Call("startContainers", "", f"ContainerLauncher-{n}", n, 100 - 30 * n) for n in range(3))
    other = Call("allocate", "", "Reporter", 0, 100)
    starts_ns = {"before": -1, "a": 90, "b": 30, "c": 35, "without a call": 101}
    found = rpc.calls_of_starts([other, first, second, third], starts_ns)
    assert found == {"a": first, "b": third, "c": second}


def test_calls_are_paired_by_line_and_belong_to_their_daemon() -> None:
    assert calls(DRIVER) == [
        Call("getNewApplication", "", "Thread-4", 16522441757635, 16523095361286),
        Call("create", "/user/a b/pyspark.zip", "Thread-4", 16527397156649, 16527620346376),
        Call("addBlock", "/user/a b/pyspark.zip", "Thread-11", 16528141921202, 16528346204339),
        Call("getBlockLocations", "/gone", "Thread-4", 16528241921202, 16528446204339),
    ]
    assert lane_of(DRIVER) == [
        ("yarn", "getNewApplication RPC", 16522441757635, 16523095361286),
        ("hdfs", "create NameNode", 16527397156649, 16527620346376),
        ("hdfs", "getBlockLocations NameNode", 16528241921202, 16528446204339),
    ]


def test_polls_are_spans_only_after_the_release_of_their_wait() -> None:
    first, last = calls(POLLS)
    whole = (first.start_ns - 1, last.end_ns + 1)
    assert lane_of(POLLS, (*whole, None)) == []
    after = lane_of(POLLS, (*whole, first.end_ns))
    assert after == [("yarn", "getApplicationReport RPC", last.start_ns, last.end_ns)]
    first, last = calls(POLLS)
    assert builder.poll_ns([first, last], "getApplicationReport", last.end_ns) == 1_000_900_509
    assert builder.poll_ns([first], "getApplicationReport", last.end_ns) is None
    assert builder.poll_ns([first, last], "allocate", last.end_ns) is None


def test_calls_beside_python_work_are_left_out() -> None:
    """A feed task's Python is not held up by its JVM's calls, except where it reads a block; the last goes on after."""
    (call,) = [call for call in calls(DRIVER) if call.method == "create"]
    lane = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    at_ns, length_ns = call.start_ns, call.end_ns - call.start_ns

    def span(number: int, name: str, start_ns: int, end_ns: int) -> RecordedSpan:
        return RecordedSpan(number, 0, "spark", name, at_ns + start_ns, at_ns + end_ns, False, {}, {}, "")

    python = [
        span(1, kinds.FEED_TASK, -5000, length_ns - 9000),
        span(2, kinds.READ_BLOCK, 10_000, 20_000),
        span(3, kinds.PUT, 20_100, 30_000),
        span(4, kinds.READ_BLOCK, 30_000, 40_000),
    ]
    elsewhere = [(start_ns, end_ns) for start_ns, end_ns in without_reads(RecordedSpans.of(python)).tolist()]
    assert [(start_ns - at_ns, end_ns - at_ns) for start_ns, end_ns in elsewhere] == [
        (-5000, 10_000),
        (20_000, 30_000),
        (40_000, length_ns - 9000),
    ]
    builder.place_calls(lane, [call], "executor log", elsewhere)
    assert [(s.start_ns - at_ns, s.end_ns - at_ns) for s in lane.spans] == [
        (10_000, 20_000),
        (30_000, 40_000),
        (length_ns - 9000, length_ns),
    ]
