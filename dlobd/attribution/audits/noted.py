"""What dlobd measured beside the job: noise, the cost of a span, the page cache, memory, the counters of interfaces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, training_job, worst
from dlobd.attribution.importers.evidence import Evidence
from dlobd.tracing import names

MB = 1 << 20


def _quantiles(evidence: Evidence) -> Figures:
    """Of one measurement a lower quantile is not above a higher one."""
    noise, cost = evidence.noise or {}, evidence.span_cost
    rows: list[tuple[Any, ...]] = [
        (0, noise.get("sleep_over_p50_ns"), noise.get("sleep_over_p99_ns")),
        (0, noise.get("loopback_p50_ns"), noise.get("loopback_p99_ns")),
        (1, noise.get("loop_slowest")),
        (0, noise.get("loop_variation")),
        (0, noise.get("steal_share"), 1),
        (cost.get("lowest_ns"), cost.get("span_ns"), cost.get("highest_ns")),
    ]
    known = [[value for value in row if value is not None] for row in rows]
    if not noise and not cost:
        return Figures()
    return Figures(sum(one > other for row in known for one, other in pairwise(row)), 0)


def _page_cache(evidence: Evidence) -> Figures:
    """The page cache was asked about the files that the job read."""
    noted = evidence.page_cache
    if noted is None:
        return Figures()
    copies = int(training_job(evidence).get("replication", 1)) if evidence.file_bytes else 1
    expected = sum(evidence.file_bytes.values()) or _read_bytes(evidence)
    return Figures(noted.get("total_bytes"), copies * expected if expected else None)


def _read_bytes(evidence: Evidence) -> int:
    """What the ranks of a job on local files read of them, in one epoch."""
    spans = [s for p in evidence.processes for s in p.spans if s.attrs.get("purpose") == names.INPUT]
    epochs: int = training_job(evidence).get("epochs", 1)
    return sum(int(span.attrs.get("bytes", 0)) for span in spans) // epochs


def _resident(evidence: Evidence) -> Figures:
    noted = evidence.page_cache or {}
    total = noted.get("total_bytes")
    within = [noted.get("resident_bytes"), noted.get("before_resident_bytes")]
    return worst([value for value in within if value is not None], total) if total is not None else Figures()


def _peak(evidence: Evidence) -> Figures:
    """The NodeManagers sampled the memory of each container's processes, in MB."""
    own = evidence.collected["metrics"].get("executor_peak_bytes")
    peaks = [
        bean[key]
        for bean in evidence.container_beans
        if not bean["name"].endswith("_000001")
        for key in bean
        if key.lower().startswith("pmemusage") and "max" in key.lower()
    ]
    return Figures(None if own is None else own // MB, int(max(peaks)) if peaks else None)


def _loopback(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """(when, bytes received) by the ranks' readings of the loopback interface on the machine of the sampler."""
    for process in evidence.processes:
        instant = process.instant(names.TRANSPORT)
        if instant is None or evidence.resources is None or process.domain != evidence.resources.domain:
            continue
        for reading in filter(None, map(instant.attrs.get, ("before", "after"))):
            for interface in reading.get("interfaces", ()):
                if interface["name"] == "lo":
                    yield reading["at_ns"], interface["counts"]["received_bytes"]


def _counters(evidence: Evidence) -> Figures:
    """A counter only grows: a rank's reading lies between those of the sampler before and after it."""
    host = evidence.resources
    sampled = [(s.at_ns, s.loopback_bytes) for s in host.samples if s.loopback_bytes is not None] if host else []
    outside = []
    for at_ns, received in _loopback(evidence):
        before = [count for sample_ns, count in sampled if sample_ns <= at_ns - SAMPLE_NS]
        after = [count for sample_ns, count in sampled if sample_ns >= at_ns + SAMPLE_NS]
        if before and after:
            outside += [before[-1] - received, received - after[0]]
    return worst(outside, 0)


SAMPLE_NS = 50_000_000
"""A sample is not of one instant: its counters are read one after another."""

RULES = (
    Rule(
        "order of quantiles", "Of what was measured before the run no quantile is above a higher one.",
        "noise and span cost: pairs in the wrong order", "-", EQUAL, _quantiles,
    ),
    Rule(
        "files in the page cache", "The page cache was asked about the files that the job read.",
        "page cache: bytes of files", "file lengths x copies, or bytes read", EQUAL, _page_cache,
    ),
    Rule(
        "bytes in the page cache", "No more of the files was in memory than they have.",
        "page cache: resident bytes", "page cache: bytes of files", NOT_MORE, _resident,
    ),
    Rule(
        "memory of executors", "The largest executor is the one that the NodeManagers saw.",
        "collected metrics, MB", "NodeManagers' beans of containers, MB", EQUAL, _peak,
    ),
    Rule(
        "counters of loopback", "What ranks read of an interface's counters lies between two readings of the sampler.",
        "transport marks: bytes outside", "samples, bytes", NOT_MORE, _counters,
    ),
)  # fmt: skip
