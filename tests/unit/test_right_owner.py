"""Whose time it is when something takes long: a captured run that stood still at a known moment, and who is blamed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from stalls import said, stalled

from dlobd.attribution.attribute import attribute
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.lanes.assemble import assemble
from dlobd.schema import Attribution

QUICK = Path(__file__).parents[1] / "data" / "quick-run"
AM, EXECUTOR_1, EXECUTOR_2 = (f"containers/container_1795263978565_0001_01_00000{n}/stderr" for n in (1, 2, 3))
RM, NM = "daemons/resourcemanager.log", "daemons/nodemanager-0.log"
STALL_NS = 2_000_000_000
UNCERTAIN_NS = 10_000
"""What stamps of two logs are good for."""


def layers(found: Attribution) -> Counter[str]:
    """Layer to its time, with what no layer has."""
    return Counter({layer.layer: layer.ns for layer in found.layers}, unattributed=found.unattributed_ns)


def grown(before: Attribution, after: Attribution) -> dict[str, int]:
    """Which layers' times differ, by more than stamps are uncertain."""
    here, there = layers(after), layers(before)
    differences = {layer: here[layer] - there[layer] for layer in here.keys() | there.keys()}
    return {layer: ns for layer, ns in differences.items() if abs(ns) > UNCERTAIN_NS}


CASES = {
    "the ResourceManager is slow to submit": ("driver.stderr", ("Submitting application app",), "yarn"),
    "the ResourceManager is slow to register": (AM, ("Registering the ApplicationMaster",), "yarn"),
    "the ApplicationMaster asks late": (RM, ("_000003 Container Transitioned", "to ALLOCATED"), "spark"),
    "the ApplicationMaster launches late": (RM, ("_000003 Container Transitioned", "to ACQUIRED"), "spark"),
    "the NodeManager starts late": (NM, ("Start request for container", "_000003"), "yarn"),
    "an executor reports its last task late": (EXECUTOR_1, ("Finished task", "stage 2.0"), "spark"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stall_belongs_to_who_was_at_work(case: str, tmp_path: Path) -> None:
    """All of it, and nothing to anybody else."""
    log, words, layer = CASES[case]
    before = attribute(assemble(QUICK))
    after = attribute(assemble(stalled(QUICK, tmp_path, said(QUICK, log, *words).at_ns + 1000, STALL_NS)))
    difference = grown(before, after)
    assert difference.keys() == {layer}, difference
    assert difference[layer] == pytest.approx(STALL_NS, abs=UNCERTAIN_NS)
    assert not [clip for clip in after.clips if clip.kind in ("inconsistent", "cycle")]


def test_a_feed_ends_with_sparks_tasks(tmp_path: Path) -> None:
    """An executor reports the feed's last task when the trainers have long been done: from their end on Spark is waited
    for, and until then they are."""
    by_ns = 5_000_000_000
    ranks = {
        path.relative_to(QUICK)
        for path in QUICK.rglob("spans-*.jsonl")
        if any(f'"role":"{role}"' in path.read_text() for role in ("chief", "worker"))
    }
    assert len(ranks) == 2
    done_ns = max(said(QUICK, log, "Finished task", "stage 1.0").at_ns for log in (EXECUTOR_1, EXECUTOR_2))
    before = assemble(QUICK)
    trace = assemble(stalled(QUICK, tmp_path, done_ns + 1000, by_ns, but=ranks))
    ended_ns = max(span.end_ns for span in trace.spans if span.lane.startswith("rank-") and "done-marker" in span.name)
    (feed,) = [span for span in trace.spans if span.name == "feed job"]
    late_ns = feed.end_ns - ended_ns
    assert late_ns > 1_000_000_000
    (reported,) = [s for s in trace.spans if s.name.startswith("report task") and s.end_ns - s.start_ns > by_ns]
    after = attribute(trace)
    difference = grown(attribute(before), after)
    assert difference["spark"] == pytest.approx(late_ns, abs=0.2 * late_ns)
    assert sum(row.unexplained_ns for row in after.layers) < 0.01 * late_ns
    named = [s for s in after.segments if s.span is reported]
    assert sum(s.end_ns - s.start_ns for s in named) > 0.9 * late_ns


@pytest.mark.parametrize(
    ("log", "words", "after_ns"),
    [
        (EXECUTOR_2, ("input split",), 1000),
        ("daemons/namenode-audit.log", ("cmd=open", "part-00001.tfrecord"), 1000),
        ("daemons/datanode-0-clienttrace.log", ("HDFS_READ",), -1000),
    ],
    ids=["before the NameNode answers", "before the DataNode accepts", "while the DataNode sends"],
)
def test_the_bound_of_an_input_holds_a_slow_hdfs(
    log: str, words: tuple[str, ...], after_ns: int, tmp_path: Path
) -> None:
    """Whatever of it was slow while Spark's JVM read, from the line before it opens the file to the last byte."""
    blocks = Evidence(QUICK).blocks["/dlobd/data/mnist-v1-w2-n6000-t2000-s1-r1/train/part-00001.tfrecord"]
    if "clienttrace" in log:
        log, words = _trace_of(blocks)
    at_ns = said(QUICK, log, *words).at_ns + after_ns
    by_lane = [
        {i.lane: i.hi_ns for i in assemble(bundle).intervals if i.name == "read input"}
        for bundle in (QUICK, stalled(QUICK, tmp_path, at_ns, STALL_NS))
    ]
    assert by_lane[1]["executor-2"] - by_lane[0]["executor-2"] == pytest.approx(STALL_NS, abs=UNCERTAIN_NS)


def _trace_of(blocks: set[str]) -> tuple[str, tuple[str, ...]]:
    """The DataNode's log that has the read of these blocks in the window, and words of its line."""
    for log in ("daemons/datanode-0-clienttrace.log", "daemons/datanode-1-clienttrace.log"):
        for block in blocks:
            if f"{block}_" in (QUICK / "logs" / log).read_text():
                return log, ("HDFS_READ", f"{block}_")
    raise AssertionError(blocks)
