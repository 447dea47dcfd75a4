"""Sums the use of HDFS: operations, bytes, and time.

Time is a number if dlobd's own client measured it, or if a log shows start and end; else it is an interval. Upper bound
of a read by Spark: from the line before the task opens its input until its last block was sent. Upper bound of
localisation by a NodeManager: the sum of the DataNodes' durations, which contain the reader's back-pressure. Lower
bound: the number of bytes divided by the rate of the fastest transfer of the run.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import Span, Spans
from dlobd.bundle import files, reading
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.hdfs import CloseRetry, Transfer
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.rpc import Call
from dlobd.layers import HDFS
from dlobd.record.run import HdfsUse
from dlobd.schema import Interval
from dlobd.spans import Details, JsonMap
from dlobd.timeline.builder import Part, spans_of
from dlobd.timeline.executor import lane_of

CLIENT_TRACE = "DN client trace"
DATANODE_LOG = "DN log"
AUDIT_LOG = "NN audit log"
ALL_CALLS = "all calls of the NameNode"
MARKER_LOOKS = "of these, looks for done-markers"
OPENED = f"executor log, {CLIENT_TRACE}"
COMPLETE = "complete"
"""The client's NameNode call that closes a file."""
VERBS = {kinds.READ_FILE: "read", kinds.WRITE_FILE: "write", kinds.STREAM: "read"}
MOST_INTERVALS = 1_000
MIN_RATE_BYTES = 1 << 20
"""Smallest transfer that measures the peak rate; smaller transfers measure latency."""


def intervals(evidence: Evidence) -> list[Interval]:
    """Return HDFS time inside spans of other layers: reads of input by executors' JVMs, and localisation by
    NodeManagers."""
    large = [t for t in evidence.hdfs.transfers if t.bytes >= MIN_RATE_BYTES and t.duration_ns > 0]
    rate = max((t.bytes / t.duration_ns * 1e9 for t in large), default=None)
    of_block: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in evidence.hdfs.reads:
        of_block[transfer.block].append(transfer)
    found: list[Interval] = []
    for executor, log in evidence.executors.items():
        for task, split in sorted(log.splits.items()):
            end = log.finished.get(task) or evidence.window["exit_ns"]
            # one task at a time reads an input file, so that block and time identify the task
            blocks = evidence.hdfs.blocks.get(split.path, set())
            reads = [t for block in blocks for t in _between(of_block[block], split.at_ns, end)]
            if reads:
                # from the line before it opens the file: no log of HDFS has the time of the NameNode's call and of the
                # connection to a DataNode
                last = max(t.end_ns for t in reads)
                bounds = _at_peak_ns(split.bytes, rate), last - split.at_ns
                lane = lane_of(executor, evidence.slot_of(executor, task))
                found.append(_interval(kinds.READ_INPUT, "spark", lane, split.at_ns, last, bounds, OPENED))
    lanes = {name: one.application_lane for one in evidence.applications for name in one.yarn.containers}
    for container, marks in sorted(evidence.yarn.containers.items()):
        opened, closed = marks.at.get("LOCALIZING"), marks.at.get("SCHEDULED")
        if opened is None or closed is None:
            continue
        owner = evidence.executor_of.get(container)
        lane = lane_of(owner) if owner else lanes[container]
        reads = _between(evidence.hdfs.reads, opened, closed)
        if reads:
            bounds = _at_peak_ns(sum(t.bytes for t in reads), rate), sum(t.duration_ns for t in reads)
            found.append(_interval("localise", "yarn", lane, opened, closed, bounds, CLIENT_TRACE))
    return found


def datanode_calls(evidence: Evidence, parts: Sequence[Part]) -> list[Span]:
    """Return the NameNode calls that a DataNode made for reads and writes over WebHDFS."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in evidence.hdfs.datanode_calls:
        calls[call.path].append(call)
    found: list[Span] = []
    for span in spans_of(parts, lambda kind: kind in (kinds.READ_FILE, kinds.WRITE_FILE)):
        for call in calls.get(span.attrs.get("path", ""), ()):
            if span.start_ns <= call.start_ns and call.end_ns <= span.end_ns:
                where = (f"{span.id}/datanode-{len(found)}", None, kinds.NAMENODE_CALL, span.process, span.lane)
                times = call.start_ns, call.end_ns
                more: Details = {"detail": call.method, "attrs": {"path": call.path}}
                found.append(Span(*where, *times, source=DATANODE_LOG, resolution_ns=RESOLUTION_NS, **more))
    return found


def close_retries(evidence: Evidence, parts: Sequence[Part]) -> list[Span]:
    """Return the client's sleeps before close retries: a setting causes this HDFS time, not a disk."""
    if not evidence.hdfs.close_retries:
        return []
    with_path = [span for span in spans_of(parts, lambda kind: kind.layer == HDFS) if span.attrs.get("path")]
    tries: dict[str, list[Span]] = defaultdict(list)
    written: dict[str, list[Span]] = defaultdict(list)
    for span in with_path:
        completes = span.kind is kinds.NAMENODE_CALL and span.detail == COMPLETE
        (tries if completes else written)[span.attrs["path"]].append(span)
    found: list[Span] = []
    for retry in evidence.hdfs.close_retries:
        for span in written[retry.path.removesuffix(".inprogress")]:
            if span.start_ns <= retry.at_ns < span.end_ns:
                mine = [t for t in tries[retry.path] if t.lane == span.lane]
                found.append(_sleep(span, retry, mine, len(found)))
    return found


def _sleep(write: Span, retry: CloseRetry, tries: Iterable[Span], number: int) -> Span:
    starts_ns = min((t.end_ns for t in tries if t.start_ns <= retry.at_ns < t.end_ns), default=retry.at_ns)
    next_ns = min((t.start_ns for t in tries if t.start_ns >= starts_ns), default=write.end_ns)
    slept = starts_ns, min(starts_ns + retry.delay_ns, next_ns, write.end_ns)
    cause, source = kinds.CLOSE_RETRY_READ, "NN log"
    if retry.next_ns is None:
        cause, source = kinds.CLOSE_RETRY, "NN log, client's default"
    where = (f"{write.id}/retry-{number}", None, kinds.SLEEP_BEFORE_CLOSE, write.process, write.lane)
    return Span(*where, *slept, source=source, resolution_ns=RESOLUTION_NS, **cause.fields(retry.delay_ns))


def _interval(
    name: str, inside: str, lane: str, start: int, end: int, bounds_ns: tuple[int, int], hi_source: str
) -> Interval:
    lo_source = f"bytes / fastest {CLIENT_TRACE} rate"
    hi_ns = min(bounds_ns[1], end - start)
    return Interval("hdfs", inside, lane, start, end, min(bounds_ns[0], hi_ns), hi_ns, lo_source, hi_source, name)


def _at_peak_ns(size: int, rate: float | None) -> int:
    return round(size / rate * 1e9) if rate else 0


def _between(sorted_: list[Transfer], start: int, end: int) -> list[Transfer]:
    """Return the transfers that end in [start, end], of transfers in the order of their ends."""
    at = attrgetter("end_ns")
    return sorted_[bisect_left(sorted_, start, key=at) : bisect_right(sorted_, end, key=at)]


def outages(evidence: Evidence) -> list[str]:
    """Return a warning for each failed DataNode whose reads and writes succeeded at another DataNode."""
    given_up = Counter(
        (instant.attrs["address"], instant.attrs["how"])
        for process in evidence.processes
        for instant in process.instants
        if instant.name == kinds.DATANODE_GIVEN_UP
    )
    return [
        f"the DataNode at {address} {how}: {count} reads and writes used another DataNode"
        for (address, how), count in sorted(given_up.items())
    ]


def summary(evidence: Evidence, spans: Spans, found: Iterable[Interval]) -> tuple[HdfsUse, ...]:
    """Return HDFS work by purpose. Times are sums over lanes that overlap, so they may exceed the wall time."""
    rows: dict[str, JsonMap] = {}
    with_purpose = np.array([bool(attrs.get("purpose")) for attrs in spans.attributes], np.bool_)[spans.attrs]
    own = np.flatnonzero(spans.of_kinds(lambda kind: kind.layer == HDFS) & with_purpose)
    alike = np.stack([spans.origin[own], spans.kind[own], spans.attrs[own]])
    groups, first, group, counts = np.unique(alike, axis=1, return_index=True, return_inverse=True, return_counts=True)
    total_ns = np.zeros(len(first), np.int64)
    # a span that ends before its start is counted as a clip
    np.add.at(total_ns, group, np.maximum(0, spans.end_ns[own] - spans.start_ns[own]))
    for place in np.argsort(first).tolist():
        origin, of_kind, attrs = groups[:, place].tolist()
        purpose, kind = spans.attributes[attrs]["purpose"], spans.kinds[of_kind][0]
        begin, _, end = spans.origins[origin].source.partition(", ")
        verb = VERBS.get(kind, "")
        if kind is kinds.STREAM and purpose == kinds.INPUT:
            verb = ""  # the row "read input" is the interval of Spark's own reads
        name = f"{verb} {purpose}" if verb else purpose
        row = rows.setdefault(name, _row(name, 0, begin, end or begin))
        row["operations"] += int(counts[place])
        row["ns"] += int(total_ns[place])
        row["bytes"] += int(counts[place]) * spans.attributes[attrs].get("bytes", 0)
    for row in rows.values():
        row["lo_ns"] = row["hi_ns"] = row["ns"]
    if "staging" in rows:
        created = (audit.path for audit in evidence.hdfs.audits if audit.command == "create")
        rows["staging"]["bytes"] = _written(evidence, {path for path in created if "/.sparkStaging/" in path})
    if "event log" in rows:
        # the bundle has the data of a compressed log, whose size in HDFS is unknown
        plain = not Path(evidence.driver.log.event_log.removesuffix(".inprogress")).suffix
        rows["event log"]["bytes"] = reading.size(evidence.path / files.EVENT_LOG) if plain else None
    for interval in found:
        row = rows.setdefault(interval.name, _row(interval.name, None, interval.lo_source, interval.hi_source))
        row["operations"] += 1
        row["lo_ns"] += interval.lo_ns
        row["hi_ns"] += interval.hi_ns
    splits = [split for log in evidence.executors.values() for split in log.splits.values()]
    if kinds.READ_INPUT in rows:
        rows[kinds.READ_INPUT]["bytes"] = sum(split.bytes for split in splits)
    if "localise" in rows:
        rows["localise"]["bytes"] = _localised(evidence)
    return tuple(HdfsUse(**row) for row in (*rows.values(), *_calls(evidence)))


def summed(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """Return intervals for the record. More than `MOST_INTERVALS` are summed by layers, name and sources, without a
    lane."""
    if len(intervals) <= MOST_INTERVALS:
        return tuple(intervals)
    alike: dict[tuple[str, ...], list[Interval]] = defaultdict(list)
    for one in intervals:
        alike[one.layer, one.inside, one.lo_source, one.hi_source, one.name].append(one)
    return tuple(
        replace(
            some[0],
            lane="",
            start_ns=min(one.start_ns for one in some),
            end_ns=max(one.end_ns for one in some),
            lo_ns=sum(one.lo_ns for one in some),
            hi_ns=sum(one.hi_ns for one in some),
        )
        for some in alike.values()
    )


def _calls(evidence: Evidence) -> list[JsonMap]:
    """Return rows with the number of NameNode calls in the window: all calls, and the driver's listings of
    done-markers."""
    start_ns, end_ns = evidence.window["exec_ns"], evidence.window["exit_ns"]
    asked = [a for a in evidence.hdfs.audits if start_ns <= a.at_ns < end_ns]
    if not asked:
        return []
    looks = [a for a in asked if a.command == "listStatus" and a.path == f"{evidence.job.get('run_dir')}/done"]
    rows = [(ALL_CALLS, asked)] if evidence.topology.user_script else [(ALL_CALLS, asked), (MARKER_LOOKS, looks)]
    unknown = {"bytes": None, "lo_ns": None, "hi_ns": None}
    return [_row(purpose, None, AUDIT_LOG, AUDIT_LOG) | unknown | {"operations": len(of)} for purpose, of in rows]


def _row(purpose: str, ns: int | None, begin: str, end: str) -> JsonMap:
    zero = dict.fromkeys(("operations", "bytes", "lo_ns", "hi_ns"), 0)
    return {"purpose": purpose, "ns": ns, "source_begin": begin, "source_end": end, **zero}


def _written(evidence: Evidence, paths: set[str]) -> int | None:
    """Return the bytes that DataNodes wrote during the creation of the staging files; None without a client trace."""
    times = [a.at_ns for a in evidence.hdfs.audits if a.path in paths]
    if not times or not evidence.hdfs.transfers:
        return None
    first, last = min(times), max(times)
    return sum(t.bytes for t in evidence.hdfs.transfers if t.operation == "HDFS_WRITE" and first <= t.end_ns <= last)


def _localised(evidence: Evidence) -> int:
    reads = {
        (transfer.end_ns, transfer.block): transfer.bytes
        for marks in evidence.yarn.containers.values()
        if {"LOCALIZING", "SCHEDULED"} <= set(marks.at)
        for transfer in _between(evidence.hdfs.reads, marks.at["LOCALIZING"], marks.at["SCHEDULED"])
    }
    return sum(reads.values())
