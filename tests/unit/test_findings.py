"""Findings: causes, savings, and runs without findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.bundle.noise import UNKNOWN_NOISE, noise_ns
from dlobd.experiment import files
from dlobd.experiment.own_job import from_dict
from dlobd.findings.base import Context
from dlobd.findings.find import FINDERS, LARGER, findings
from dlobd.findings.rules import RULES, S
from dlobd.layers import LAYERS
from dlobd.record.resources import CoreWaits, EnvironmentCache, EnvironmentPart, LaneTime
from dlobd.record.run import Finding
from dlobd.schema import MAIN_LANE, Process, Span, Trace
from tests.captured import NAMES, Captured
from tests.strategies import span

TOP = Path(__file__).parents[2]
MAIN_JOB = files.load("softmax-mnist", [])


def case(
    *spans: Span,
    end_s: int = 100,
    chosen: Any = MAIN_JOB,
    walls: tuple[int, ...] = (),
    assumed: float | None = None,
    **members: Any,
) -> Context:
    trace = Trace(0, end_s * S, spans)
    seen: Any = SimpleNamespace(document=lambda name: {"earlier_walls_ns": walls, "assumed": assumed})
    return Context(seen, chosen, trace, attribute(trace), members.get("core_waits"), members.get("environment_cache"))


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


def test_half_of_a_start_of_a_jvm_is_saved_once() -> None:
    start = piece("executor JVM boots", "spark", 0, 40)
    (found,) = findings(case(start))
    assert (found.finding, found.ns, found.saves_ns) == ("jvm-startup", 40 * S, 20 * S)
    options = ("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1")
    job = replace(from_dict(Captured.stored("own-run")["configuration"]), options=options)
    assert findings(case(start, chosen=job)) == []
    assert findings(case(start, chosen=replace(job, options=()))) == [found]


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


def test_a_cold_start_differs_from_a_slow_import() -> None:
    part = EnvironmentPart("environment", "cold", 900 << 20, 10 << 20, 900 << 20)
    slow = piece("import tensorflow", "tensorflow", 0, 25)
    found = findings(case(slow, environment_cache=EnvironmentCache("cold", (part,))))
    assert found[0].finding == "cold-start"
    assert found[0].saves_ns == 22.5 * S
    assert found[0].evidence[-1] == "environment: 10 of 944 MB were in the page cache"
    assert findings(case(slow, environment_cache=EnvironmentCache("warm", (replace(part, state="warm"),)))) == []
    assert findings(case(slow)) == []


def test_cores_that_others_had() -> None:
    whole = LaneTime(100 * S, 0, 0, 35 * S, 40 * S, 0, 40 * S, 60 * S, 0)
    waits = CoreWaits(whole, (), (), (), (), foreign_cpu_ns=90 * S, held_up_ns=30 * S, busy=True)
    found = findings(case(core_waits=waits))
    assert (found[0].finding, found[0].saves_ns, found[0].lo_ns) == ("contention", 30 * S, 25 * S)
    assert findings(case(core_waits=replace(waits, held_up_ns=0))) == []
    assert findings(case(core_waits=replace(waits, held_up_ns=None))) == []


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
