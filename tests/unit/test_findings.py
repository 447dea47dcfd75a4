"""Findings: causes, savings, and runs without findings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Span
from dlobd.bundle import files as files_of_bundle
from dlobd.bundle.noise import UNKNOWN_NOISE, noise_ns
from dlobd.bundle.store import Bundle
from dlobd.channel import Channel
from dlobd.evidence.event_log import EventLog
from dlobd.evidence.hdfs import CloseRetry, Transfer
from dlobd.evidence.topology import Placement, Topology
from dlobd.experiment import files
from dlobd.experiment.own_job import from_dict
from dlobd.findings.base import Context
from dlobd.findings.find import FINDERS, LARGER, findings
from dlobd.findings.rules import QUICK_START, RULES, S
from dlobd.layers import LAYERS
from dlobd.measures.core_waits import Carrier
from dlobd.record.resources import CacheState, CoreWaits, EnvironmentCache, EnvironmentPart, LaneTime
from dlobd.record.run import Finding
from dlobd.schema import MAIN_LANE, Process
from tests.captured import NAMES, Captured, copy_of, recomputed
from tests.strategies import span, trace_of

TOP = Path(__file__).parents[2]
MAIN_JOB = files.load("softmax-mnist", [])


LOCAL, STANDALONE, NATIVE = Placement.LOCAL, Placement.STANDALONE, Placement.NATIVE
OWN_JOB: Any = from_dict(Captured.stored("own-run")["configuration"])


def case(
    *spans: Span, end_s: int = 100, chosen: Any = MAIN_JOB, waits: Any = None, cache: Any = None, **seen: Any
) -> Context:
    """A run of these spans. `seen`: its placement, the settings of Spark, and the logs of HDFS."""
    trace = trace_of(0, end_s * S, spans)
    walls = seen.get("walls", ())
    evidence: Any = SimpleNamespace(
        document=lambda name: {"earlier_walls_ns": walls, "assumed": seen.get("assumed")},
        topology=Topology(seen.get("placement", Placement.YARN_CLIENT)),
        event_log=EventLog(spark_settings=seen.get("settings", {})),
        hdfs=SimpleNamespace(close_retries=seen.get("retries", ()), transfers=seen.get("transfers", ())),
        resources=None,
        processes=[],
    )
    return Context(evidence, chosen, trace, attribute(trace), waits, cache)


def piece(name: str, layer: str, from_s: float, until_s: float, lane: str = MAIN_LANE, /, **fields: Any) -> Span:
    host = fields.pop("host", "host")
    return replace(
        span(f"{name} {lane} {from_s}", layer, round(from_s * S), round(until_s * S), lane, name=name, **fields),
        process=Process(host, "worker", 0, 1),
    )


def named(found: list[Finding], name: str) -> Finding:
    return next(one for one in found if one.finding == name)


def test_the_largest_saving_comes_first_with_its_evidence() -> None:
    """The queue's 40 s come before 20 s of pauses; a container that takes one heartbeat would be there anyway."""
    found = findings(
        case(piece("allocate AM container", "yarn", 0, 41, source="RM log"), piece("GC pause", "spark", 50, 70))
    )
    assert [one.finding for one in found] == ["queue", "garbage"]
    assert (found[0].ns, found[0].saves_ns, found[0].above_noise) == (41 * S, 40 * S, True)
    assert found[0].evidence == ("YARN, allocate AM container: 41.000 s in 1 piece (between marks, RM log)",)
    assert "spark.yarn.queue" in found[0].remedy


START = piece("executor JVM boots", "spark", 0, 40)


def test_half_of_a_start_of_a_jvm_is_saved_once() -> None:
    (found,) = findings(case(START))
    assert (found.finding, found.ns, found.saves_ns) == ("jvm-startup", 40 * S, 20 * S)
    options = {f"spark.{jvm}.extraJavaOptions": f"-Xss2m {QUICK_START}" for jvm in ("driver", "executor", "yarn.am")}
    assert findings(case(START, settings=options)) == []
    (lacks,) = findings(case(START, settings={**options, "spark.yarn.am.extraJavaOptions": ""}))
    assert lacks == found
    assert findings(case(START, settings=options | {"spark.yarn.am.extraJavaOptions": ""}, placement=LOCAL)) == []


def test_the_shorter_of_two_awaited_lanes_is_no_finding() -> None:
    beside = [piece("allocate executor container", "yarn", 10, 60, f"executor-{i}") for i in (1, 2)]
    wait = piece("wait for executors", "spark", 10, 60, waits_for=("executor-1", "executor-2"))
    assert findings(case(wait, *beside))[0].saves_ns == 49 * S
    other = piece("executor JVM boots", "spark", 10, 59, "executor-2")
    found = findings(case(wait, beside[0], other))
    assert named(found, "queue").saves_ns == S
    assert not named(found, "queue").above_noise


def test_boundaries_and_noise_limit_findings() -> None:
    found = findings(case(piece("GC pause", "spark", 0, 30, resolution_ns=25 * S)))
    assert (found[0].saves_ns, found[0].lo_ns, found[0].above_noise) == (30 * S, 5 * S, False)
    assert findings(case(piece("GC pause", "spark", 0, 30, resolution_ns=30 * S))) == []
    assert noise_ns((100 * S, 101 * S), 100 * S) == UNKNOWN_NOISE * 100 * S
    assert noise_ns((100 * S, 101 * S) * 3, 100 * S) == pytest.approx(1.51 * S, rel=0.01)
    quiet = case(piece("GC pause", "spark", 0, 4), walls=(100 * S, 101 * S) * 3)
    assert findings(quiet)[0].above_noise
    assert not findings(case(piece("GC pause", "spark", 0, 4)))[0].above_noise
    assert findings(case(piece("GC pause", "spark", 0, 4), assumed=0.03))[0].above_noise
    assert not findings(case(piece("GC pause", "spark", 0, 4), assumed=0.05))[0].above_noise


def test_a_setting_that_is_there_is_not_recommended() -> None:
    sleep = piece(
        "sleep", "launcher", 0, 50, cause="TensorFlowOnSpark reservation poll (sleep 1 s)", cause_period_ns=50 * S
    )
    assert findings(case(sleep)) == []
    stock = replace(MAIN_JOB, launcher="tfos-stock")
    assert findings(case(sleep, chosen=stock))[0].finding == "polls"
    fed = piece("get", "feed", 0, 50)
    assert findings(case(fed))[0].finding == "feed"
    assert findings(case(fed, chosen=replace(MAIN_JOB, input="read"))) == []


def test_checkpoints_differ_from_other_writes() -> None:
    around = piece("checkpoint", "tensorflow", 0, 40)
    inside = piece("CREATE DataNode", "hdfs", 10, 30, parent=around.id)
    found = findings(case(around, inside))
    assert [(one.finding, one.ns) for one in found] == [("checkpoints", 40 * S), ("hdfs-data", 20 * S)]
    assert [one.finding for one in findings(case(piece("OPEN DataNode", "hdfs", 10, 30)))] == ["hdfs-data"]
    every = [piece("checkpoint", "tensorflow", at_s, at_s + 0.1) for at_s in (1, 2, 3, 4)]
    slow = piece("checkpoint", "tensorflow", 10, 40)
    found = findings(case(*every, slow, piece("CREATE NameNode", "hdfs", 10, 40, parent=slow.id)))
    assert [one.finding for one in found] == ["name-node", "checkpoints"]
    assert found[1].saves_ns == pytest.approx(0.7 * S)


def test_work_of_a_rank_for_all_ranks_is_no_straggling() -> None:
    """The chief enters late because it stores the model: that is the checkpoint's."""
    wait = piece("wait for trainers", "launcher", 0, 60, waits_for=("rank-0", "rank-1"))
    late = [number + 0.4 for number in range(50)]
    stored = [piece("checkpoint", "tensorflow", number, number + 0.4, "rank-0") for number in range(50)]
    found = findings(case(wait, *steps("rank-0", "host", late), *steps("rank-1", "host", list(range(50))), *stored))
    assert [one.finding for one in found] == ["checkpoints"]


def steps(lane: str, host: str, enters: list[float], length_s: float = 0.5) -> list[Span]:
    return [
        piece(
            "step",
            "tensorflow",
            at_s,
            number + length_s + 0.4,
            lane,
            rendezvous=f"step {number}",
            call=number,
            host=host,
        )
        for number, at_s in enumerate(enters)
    ]


def test_a_straggler_is_named_with_its_host() -> None:
    wait = piece("wait for trainers", "launcher", 0, 60, waits_for=("rank-0", "rank-1"))
    slow = steps("rank-1", "slow-host", [number + 0.4 for number in range(50)])
    found = findings(case(wait, *steps("rank-0", "host", list(range(50))), *slow))
    straggler = named(found, "straggler")
    assert straggler.saves_ns == pytest.approx(20 * S)
    assert "slow-host" in straggler.remedy
    turns = [[number + 0.4 * (number % 2 == rank) for number in range(50)] for rank in (0, 1)]
    found = findings(case(wait, *steps("rank-0", "host", turns[0]), *steps("rank-1", "host", turns[1])))
    assert "straggler" not in {one.finding for one in found}


def test_short_steps_are_a_matter_of_the_batch() -> None:
    every = [piece("step", "tensorflow", n / 200, (n + 1) / 200, call=n) for n in range(1, 10_000)]
    small = replace(MAIN_JOB, batch_size=4)
    found = findings(case(*every, chosen=small))
    assert [one.finding for one in found] == ["short-steps"]
    assert found[0].saves_ns == pytest.approx(found[0].ns * (LARGER - 1) / LARGER)
    assert f"batch_size = {LARGER * 4} instead of 4" in found[0].remedy
    assert findings(case(*every)) == []
    assert findings(case(*[piece("step", "tensorflow", n, n + 1, call=n) for n in range(1, 50)], chosen=small)) == []


def cache_of(**states: CacheState) -> EnvironmentCache:
    """Page cache of an environment whose parts have these states."""
    parts = tuple(EnvironmentPart(name, state, 900 << 20, 10 << 20, 900 << 20) for name, state in states.items())
    return EnvironmentCache("cold", parts)


def test_a_cold_start_differs_from_a_slow_import() -> None:
    slow = piece("import tensorflow", "tensorflow", 0, 25)
    found = findings(case(slow, cache=cache_of(TensorFlow="cold")))
    assert found[0].finding == "cold-start"
    assert found[0].saves_ns == 22.5 * S
    assert found[0].evidence[1:] == ("TensorFlow: 10 of 944 MB were in the page cache",)
    assert findings(case(slow, cache=cache_of(TensorFlow="warm"))) == []
    assert findings(case(slow)) == []
    other = piece("import pyspark", "spark", 30, 60)
    assert findings(case(other, cache=cache_of(TensorFlow="cold"))) == []


def test_a_cold_start_is_that_of_the_files_that_were_not_in_memory() -> None:
    """18 MB of Spark's jars are not read by an import, and another package's files are not measured."""
    slow = piece("import tensorflow", "tensorflow", 0, 25)
    assert findings(case(slow, cache=cache_of(TensorFlow="warm", Java="warm", Spark="partly"))) == []
    other = piece("import pyspark", "spark", 30, 60)
    (found,) = findings(case(slow, other, cache=cache_of(TensorFlow="partly", Spark="cold")))
    assert (found.finding, found.ns) == ("cold-start", 25 * S)


def test_a_wait_for_a_core_is_no_cold_start() -> None:
    slow = piece("import tensorflow", "tensorflow", 0, 25)
    context = case(slow, cache=cache_of(TensorFlow="cold"))
    threads = Carrier([[(0, 0, 0), (25 * S, 8 * S, 15 * S)]])  # on a core for 8 s, waiting for 15 s
    context.__dict__["carriers"] = SimpleNamespace(carrier=lambda segment: threads)
    (found,) = findings(context)
    assert (found.ns, found.saves_ns) == (10 * S, 7.5 * S)


def test_cores_that_others_had() -> None:
    whole = LaneTime(100 * S, 0, 0, 35 * S, 40 * S, 0, 40 * S, 60 * S, 0)
    waits = CoreWaits(whole, (), (), (), (), foreign_cpu_ns=90 * S, held_up_ns=30 * S, busy=True)
    found = findings(case(waits=waits))
    assert (found[0].finding, found[0].saves_ns, found[0].lo_ns) == ("contention", 30 * S, 25 * S)
    assert findings(case(waits=replace(waits, held_up_ns=0))) == []
    assert findings(case(waits=replace(waits, held_up_ns=None))) == []


def upload(name: str) -> Span:
    return piece("upload to staging", "hdfs", 0, 40, attrs={"purpose": "staging", "path": f"/user/me/{name}"})


def waited(cause: str, layer: str = "launcher") -> Span:
    return piece("sleep", layer, 0, 50, cause=cause, cause_period_ns=50 * S)


HDFS_JARS = {"spark.yarn.archive": "hdfs:///spark.tgz"}
SHIPPED = Transfer(20 * S, "HDFS_WRITE", 400 << 20, S, "blk_1", "client")
RETRY = CloseRetry(0, "/model", 400 * 10**6)
SLEPT = waited(
    "HDFS client's close retry (dfs.client.block.write.locateFollowingBlock.initial.delay.ms, 0.4 s)", "hdfs"
)
GRACE = waited("TFCluster.shutdown(grace_secs)")
POLL = waited("TensorFlowOnSpark reservation poll (sleep 1 s)")
FED = piece("get", "feed", 0, 50)
DECODED = piece("decode", "tensorflow", 0, 50)
SENT = piece("wire", "channel", 0, 50)
EVALUATED = piece("evaluate", "tensorflow", 0, 50)
ENDED = waited("TensorFlowOnSpark DataFeed.terminate (5 s without an item)")
SHUT = waited("TensorFlowOnSpark TFCluster.shutdown poll (sleep 5 s)")
LOST = piece("lost attempt", "spark", 0, 50)
SERVED = piece("OPEN DataNode", "hdfs", 0, 50)
WAITS = CoreWaits(
    LaneTime(100 * S, 0, 0, 35 * S, 40 * S, 0, 40 * S, 60 * S, 0), (), (), (), (), 90 * S, held_up_ns=30 * S, busy=True
)
DRIVER = {"spark.driver.extraJavaOptions": QUICK_START}
OPTIONS = {f"spark.{jvm}.extraJavaOptions": QUICK_START for jvm in ("driver", "executor", "yarn.am")}


def chosen(**settings: Any) -> Any:
    return replace(MAIN_JOB, **settings)


def own(**settings: Any) -> Any:
    return replace(OWN_JOB, **settings)


ADVICE = [
    ("spark.yarn.archive=", case(upload("a.zip"), settings={"spark.yarn.jars": "file:/jars/*"}), case(upload("a"))),
    (
        "spark.yarn.archive=",
        case(upload("a"), settings={"spark.app.id": "a"}),
        case(upload("a"), settings=HDFS_JARS),
    ),
    ("--py-files", case(upload("a.zip"), transfers=[SHIPPED]), case(upload("pyspark.zip"), transfers=[SHIPPED])),
    ("--py-files", case(upload("a.zip")), case(upload("a.zip"), transfers=[replace(SHIPPED, bytes=9)])),
    ("spark.yarn.am.extraJavaOptions and spark.executor", case(START), case(START, settings=OPTIONS)),
    ("driver.extraJavaOptions and spark.executor", case(START, placement=STANDALONE), case(START)),
    ("driver.extraJavaOptions", case(START, placement=LOCAL), case(START, placement=LOCAL, settings=DRIVER)),
    ("spark.yarn.am", case(START), case(START, placement=STANDALONE)),
    ("spark.yarn.am", case(START), case(START, placement=Placement.YARN_CLUSTER)),
    ('"barrier", which do not poll', case(POLL, chosen=chosen(launcher="tfos-stock")), case(POLL)),
    ("--set launcher=tfos", case(POLL, chosen=own(launcher="tfos-stock")), case(POLL, chosen=own())),
    ("grace_secs", case(GRACE, chosen=own()), case(POLL, chosen=own(launcher="tfos-stock"))),
    ('input = "read"', case(FED), case(FED, chosen=chosen(input="read"))),
    ('launcher = "barrier"', case(FED), case(FED, chosen=chosen(launcher="barrier"))),
    ("InputMode.TENSORFLOW", case(FED, chosen=own()), case(FED)),
    ("page_cache", case(SERVED), case(SERVED, chosen=chosen(page_cache="warm"))),
    (
        "initial.delay.ms=40",
        case(SLEPT, retries=[RETRY]),
        case(SLEPT, retries=[replace(RETRY, delay_ns=40 * 10**6)]),
    ),
    ("augment", case(DECODED, chosen=chosen(augment="flip-crop")), case(DECODED)),
    ("rdma", case(SENT), case(SENT, chosen=chosen(channel=Channel("shm")))),
    ("yarn.nm.liveness-monitor", case(LOST), case(LOST, placement=STANDALONE)),
    ("executor_overhead_mb", case(LOST), case(LOST, placement=LOCAL)),
    ("cgroups", case(waits=WAITS), case(waits=WAITS, placement=NATIVE)),
    ("cgroups", case(waits=WAITS), case(waits=WAITS, placement=STANDALONE)),
    ("cgroups", case(waits=WAITS), case(waits=WAITS, placement=LOCAL)),
    ("evaluate_every_epochs", case(EVALUATED, chosen=chosen(evaluate_every_epochs=1)), case(EVALUATED)),
    ("DataFeed.terminate", case(ENDED, chosen=own()), case(ENDED)),
    ("sleeps of 5 s", case(SHUT, chosen=own()), case(SHUT)),
]
"""A part of a piece of advice, a run that it helps, and a run that it does not help."""


@pytest.mark.parametrize(("advice", "sick", "healthy"), ADVICE, ids=range(len(ADVICE)))
def test_advice_appears_only_if_it_helps(advice: str, sick: Context, healthy: Context) -> None:
    assert advice in " ".join(one.remedy for one in findings(sick))
    assert advice not in " ".join(one.remedy for one in findings(healthy))


def test_every_condition_of_the_table_of_rules_is_tested() -> None:
    given = {text for rule in RULES for text in rule.advice}
    assert {text for text in given if not any(part in text for part, _, _ in ADVICE)} == set()


HEALTHY = {
    "queue": "quick-run",
    "localisation": "quick-run",
    "resource-manager": "native-run",
    "node-manager": "own-run",
    "jvm-startup": "native-run",
    "garbage": "native-run",
    "polls": "quick-run",
    "feed": "own-run",
    "hdfs-data": "own-run",
    "name-node": "native-run",
    "close-retry": "native-run",
    "checkpoints": "own-run",
    "evaluations": "quick-run",
    "input-pipeline": "own-run",
    "exchange": "quick-run",
    "lost-work": "quick-run",
    "straggler": "own-run",
    "short-steps": "quick-run",
    "cold-start": "quick-run",
    "contention": "own-run",
}
"""Finding -> a healthy run without it."""


@pytest.mark.parametrize("finding", FINDERS)
def test_each_remedy_has_a_healthy_run_without_it(finding: str, captured: Captured) -> None:
    assert finding not in {one["finding"] for one in captured.computed(HEALTHY[finding])["findings"]}


def test_a_run_without_yarn_gets_no_advice_on_yarn(captured: Captured) -> None:
    (found,) = (one for one in captured.computed("native-run")["findings"] if one["finding"] == "contention")
    assert found["remedy"] == "stop other work on these nodes"
    for one in captured.computed("native-run")["findings"]:
        assert not re.search("(?i)yarn|container|cgroup|spark", f"{one['remedy']} {one['unless']}")


def test_a_quick_start_of_jvms_is_not_recommended_to_a_run_that_has_it(tmp_path: Path) -> None:
    assert "jvm-startup" in {one["finding"] for one in Captured.computed("own-run")["findings"]}
    bundle = Bundle(copy_of("own-run", tmp_path))
    log = bundle.path / files_of_bundle.EVENT_LOG
    log.write_text(re.sub(r'(extraJavaOptions": ")', rf"\1{QUICK_START} ", log.read_text()))
    assert "jvm-startup" not in {one["finding"] for one in recomputed(bundle)["findings"]}


@pytest.mark.parametrize("capture", NAMES)
def test_findings_of_real_runs_are_sound(capture: str, captured: Captured) -> None:
    record = captured.computed(capture)
    found = record["findings"]
    assert found
    for one in found:
        assert 0 <= one["lo_ns"] <= one["saves_ns"] <= record["wall_ns"]
        assert 0 < one["ns"] <= record["wall_ns"]
        assert one["evidence"]
    for loud in (True, False):
        saves = [one["saves_ns"] for one in found if one["above_noise"] is loud]
        assert saves == sorted(saves, reverse=True)


def test_every_remedy_has_a_section_in_the_docs() -> None:
    page = (TOP / "docs" / "findings.md").read_text()
    for name in FINDERS:
        assert f"\n## {name}\n" in page
    assert {rule.layer for rule in RULES} <= LAYERS.keys()
