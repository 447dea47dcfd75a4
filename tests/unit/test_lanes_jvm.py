"""Phases of Spark's JVMs: from the line by which one begins to the line after it, in its own thread."""

from __future__ import annotations

from dlobd import spans as kinds
from dlobd.evidence import log4j
from dlobd.evidence.jvm import JvmLife
from dlobd.schema import Process
from dlobd.timeline import jvm
from dlobd.timeline.builder import LaneBuilder

EXECUTOR = """\
17455972922675 2026-11-25T01:03:56.238 INFO util.SignalUtils [main]: Registering signal handler for INT
17458970000000 2026-11-25T01:03:59.236 INFO spark.SecurityManager [main]: Changing view acls to: root
17458970000001 2026-11-25T01:03:59.236 INFO spark.SecurityManager [main]: Changing view acls groups to: root
17459465680810 2026-11-25T01:03:59.731 INFO client.TransportClientFactory [netty-rpc-connection-0]: Successfully created connection to /127.0.0.1:45631 after 202 ms (0 ms spent in bootstraps)
17460100000000 2026-11-25T01:04:00.366 INFO spark.SecurityManager [main]: Changing view acls to: root
17463002708143 2026-11-25T01:04:03.268 INFO executor.YarnCoarseGrainedExecutorBackend [dispatcher-Executor]: Connecting to driver: spark://CoarseGrainedScheduler@127.0.0.1:45631
17463240000000 2026-11-25T01:04:03.500 INFO spark.SecurityManager [dispatcher-Executor]: Changing view acls to: root
17463471105875 2026-11-25T01:04:03.737 INFO executor.YarnCoarseGrainedExecutorBackend [dispatcher-Executor]: Successfully registered with driver
"""  # noqa: E501  as they were written


def added(text: str, until_ns: int | None = None) -> list[tuple[str, int, int]]:
    lane = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    jvm.add_phases(lane, log4j.parse(text.splitlines(), "executor"), jvm.EXECUTOR, "executor log", until_ns)
    return [(span.name, span.start_ns, span.end_ns) for span in lane.spans]


def test_phases_follow_each_other_up_to_their_end() -> None:
    assert added(EXECUTOR) == [
        ("executor logs in", 17455972922675, 17458970000000),
        ("executor fetches settings", 17458970000000, 17460100000000),
        ("executor creates SparkEnv", 17460100000000, 17463002708143),
        ("executor asks to be registered", 17463002708143, 17463471105875),
    ]
    assert added(EXECUTOR, 17463400000000)[-1] == ("executor asks to be registered", 17463002708143, 17463400000000)
    assert [name for name, _, _ in added(EXECUTOR, 17460000000000)] == ["executor logs in", "executor fetches settings"]
    cut = EXECUTOR[: EXECUTOR.index("17463471105875")]
    assert [name for name, _, _ in added(cut)] == [name for name, _, _ in added(EXECUTOR)[:-1]]
    bare = EXECUTOR.replace(" [main]", "").replace(" [dispatcher-Executor]", "")
    assert added(bare.replace(" [netty-rpc-connection-0]", "")) == []


def test_the_start_and_the_pauses_of_a_jvm_are_spans() -> None:
    lane = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    life = JvmLife(100, 900, 15, 140, ((50, 120), (150, 165), (890, 910)))
    first = log4j.LogLine(350, "INFO", "a", "Started daemon with process name: 7@host", "executor", "main")
    jvm.add_boot(lane, life, (200, 300), first, "JVM log", "log")
    jvm.add_pauses(lane, life, 100, 900, "JVM log")
    assert [(span.name, span.start_ns, span.end_ns) for span in lane.spans] == [
        ("create JVM", 100, 140),
        ("configure log4j", 200, 300),
        ("executor names its process", 300, 350),
        ("GC pause", 150, 165),
    ]
    old = LaneBuilder("executor-1", Process("host", "executor", 1, 0))
    jvm.add_boot(old, JvmLife(100, 900, 15, None, ((150, 165),)), None, first, "JVM log", "log")
    jvm.add_pauses(old, JvmLife(100, 900, 15, None, ((150, 165),)), 100, 900, "JVM log")
    assert old.spans == []


def test_a_pause_inside_a_call_that_is_answered_later_holds_nothing_up() -> None:
    ms = 1_000_000
    lane = LaneBuilder("driver", Process("host", "driver", 1, 0))
    lane.add(kinds.SpanKind("getNewApplication RPC", "yarn"), 100 * ms, 500 * ms, "log")
    life = JvmLife(0, 900 * ms, 30 * ms, ms, ((200 * ms, 210 * ms), (490 * ms, 500 * ms), (600 * ms, 610 * ms)))
    jvm.add_pauses(lane, life, 0, 900 * ms, "JVM log")
    assert [span.start_ns // ms for span in lane.spans if span.name == "GC pause"] == [490, 600]
