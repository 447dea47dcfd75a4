"""What dlobd measured beside the job: noise, the cost of a span, the page cache, memory, the counters of interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, foreign, training_job, worst
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.resources import SampledProcess

MB = 1 << 20

SAMPLE_NS = 50_000_000
"""A sample is not of one instant: its counters are read one after another."""

DEVIATIONS = 10
"""Of n values none is further from the median than (n - 1) / sqrt(n) + 1 standard deviations: n is 8 before a run."""

COMPRESSED = 100
"""A file system may store a file in so much less."""

LOOK_NS = 5 * 10**9
"""A NodeManager looks at its containers each second in dlobd's clusters, each three seconds by default."""

DATANODE = ".DataNode"


def _quantiles(evidence: Evidence) -> Figures:
    """Of one measurement a lower quantile is not above a higher one, nor the slowest loop beyond what all deviate."""
    noise, cost = evidence.noise or {}, evidence.span_cost
    slowest, variation = noise.get("loop_slowest") or 1, noise.get("loop_variation")
    rows: list[tuple[Any, ...]] = [
        (0, noise.get("sleep_over_p50_ns"), noise.get("sleep_over_p99_ns")),
        (0, noise.get("loopback_p50_ns"), noise.get("loopback_p99_ns")),
        (1, noise.get("loop_slowest")),
        (0, noise.get("loop_variation")),
        ((slowest - 1) * (1 - (variation or 0)), None if variation is None else DEVIATIONS * variation),
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
    spans = [s for p in evidence.processes for s in p.spans if s.attrs.get("purpose") == kinds.INPUT]
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


def _interfaces(evidence: Evidence) -> Iterator[tuple[int, str, int]]:
    """(when, interface, bytes received) by the ranks' readings on the machine of the sampler."""
    for process in evidence.processes:
        instant = process.instant(kinds.TRANSPORT)
        if instant is None or evidence.resources is None or process.domain != evidence.resources.domain:
            continue
        for reading in filter(None, map(instant.attrs.get, ("before", "after"))):
            for interface in reading.get("interfaces", ()):
                yield reading["at_ns"], interface["name"], interface["counts"]["received_bytes"]


def _counters(evidence: Evidence) -> Figures:
    """A counter only grows: a rank's reading lies between those of the sampler before and after it."""
    host = evidence.resources
    outside = []
    for at_ns, interface, received in _interfaces(evidence):
        samples = host.samples if host else ()
        sampled = [(s.at_ns, s.received_bytes[interface]) for s in samples if interface in s.received_bytes]
        before = [count for sample_ns, count in sampled if sample_ns <= at_ns - SAMPLE_NS]
        after = [count for sample_ns, count in sampled if sample_ns >= at_ns + SAMPLE_NS]
        if before and after and before[-1] <= after[0]:  # else the interface began anew
            outside += [before[-1] - received, received - after[0]]
    # elsewhere containers may have interfaces of their own, of the same names
    return worst(outside, 0, foreign(evidence))


def _read_from_disk(evidence: Evidence) -> Figures:
    """What was not in memory of the files that the DataNodes sent, these read from a disk, compressed or not; as far as
    the kernel counts it for their file system, which it does where it counts what they wrote."""
    noted, host = evidence.page_cache, evidence.resources
    sent = sum(t.bytes for t in evidence.transfers if t.operation == "HDFS_READ")
    needed = sum(evidence.file_bytes.values())
    if noted is None or host is None or not needed or sent < needed or foreign(evidence):
        return Figures()
    nodes = [process.samples for process in host.processes if str(process.main_class).endswith(DATANODE)]
    counted = [(s[0], s[-1]) for s in nodes if s and None not in (s[0].read_bytes, s[0].write_bytes)]
    read = sum((last.read_bytes or 0) - (first.read_bytes or 0) for first, last in counted)
    wrote = sum((last.write_bytes or 0) - (first.write_bytes or 0) for first, last in counted)
    if not wrote:
        return Figures(why="the kernel does not count what the DataNodes read and write")
    return Figures(max(needed - noted["resident_bytes"], 0) // COMPRESSED, read)


def _held(evidence: Evidence) -> Figures:
    """A NodeManager looks at a container now and then: it saw what the processes of an executor kept for longer."""
    own = evidence.collected["metrics"].get("executor_peak_bytes")
    processes = evidence.resources.processes if evidence.resources else []
    held = [0]
    for process in processes:
        if process.executor is not None:
            used = sorted(_together(processes, process).items())
            for begin, (begin_ns, _) in enumerate(used):
                spell = [used[begin][1]]
                for at_ns, size in used[begin + 1 :]:
                    spell.append(size)
                    if at_ns - begin_ns >= LOOK_NS:
                        held.append(min(spell))
                        break
    share = max(held) * 9 // 10  # the two do not look at the same instant
    return Figures(share // MB or None, None if own is None else own // MB, doubt=foreign(evidence))


def _together(processes: Sequence[SampledProcess], process: SampledProcess) -> dict[int, int]:
    """What a process and its descendants had in memory, by the time of the sample, while all between them lived."""
    found = {sample.at_ns: sample.rss_bytes for sample in process.samples}
    for child in processes:
        if child.parent == process.pid:
            for at_ns, size in _together(processes, child).items():
                if at_ns in found:
                    found[at_ns] += size
    return found


RULES = (
    Rule(
        "order of quantiles", "Of what was measured before the run no quantile is above a higher one, nor the slowest "
        "loop slower than their variation allows.",
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
        "memory that executors kept", "The largest executor has what the processes of one had in memory for some "
        "seconds.",
        "samples: nine tenths of it, MB", "collected metrics, MB", NOT_MORE, _held,
    ),
    Rule(
        "counters of interfaces", "What ranks read of an interface's counter lies between readings of the sampler.",
        "transport marks: bytes outside", "samples, bytes", NOT_MORE, _counters,
    ),
    Rule(
        "reads from disk", "What was not in memory of the files that DataNodes sent, they read from a disk.",
        "page cache and file lengths: a hundredth of it, bytes", "samples: bytes that the DataNodes read",
        NOT_MORE, _read_from_disk, whole=True,
    ),
)  # fmt: skip
