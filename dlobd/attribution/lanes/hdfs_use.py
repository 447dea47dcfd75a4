"""What HDFS was used for: operations, bytes, and time.

Time is a number where dlobd's own client measured it, or where a log shows both ends; else it is an interval.

From when a task was about to open its input until the last of its blocks was sent is an upper bound: it holds calls of
the NameNode and connections, and what the reader did meanwhile. Of what a NodeManager localises it is the DataNodes'
durations, which include the reader's back-pressure. Bytes over the fastest transfer of the same run is a lower one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.hdfs import CLOSE_RETRY, CLOSE_RETRY_SEEN, CloseRetry, Transfer
from dlobd.attribution.importers.log4j import RESOLUTION_NS
from dlobd.attribution.lanes.application import LANE as APPLICATION
from dlobd.attribution.lanes.executor import lane_of
from dlobd.bundle import files
from dlobd.record.run import HdfsUse
from dlobd.schema import Interval, Span
from dlobd.tracing import names

CLIENT_TRACE = "DN client trace"
AUDIT_LOG = "NN audit log"
ALL_CALLS = "all calls of the NameNode"
MARKER_LOOKS = "of these, looks for done-markers"
OPENED = f"executor log, {CLIENT_TRACE}"
COMPLETE = "complete NameNode"
"""The client's call that closes a file, where it logs its calls."""
MIN_RATE_BYTES = 1 << 20
"""Only transfers of this size say anything about the peak rate; small ones measure latency."""


def intervals(evidence: Evidence) -> list[Interval]:
    """HDFS time inside other layers' spans: input read by executors' JVMs, and localisation by NodeManagers."""
    rate = _peak_bytes_per_s(evidence.transfers)
    found: list[Interval] = []
    for executor, log in evidence.executors.items():
        for task, split in sorted(log.splits.items()):
            end = log.finished.get(task) or evidence.window["exit_ns"]
            reads = _reads(evidence.transfers, evidence.blocks.get(split.path, set()), split.at_ns, end)
            if reads:
                # from the line that says that it is about to open the file: what comes before the first byte, at the
                # NameNode or until a DataNode accepts, no log of HDFS has
                last = max(t.end_ns for t in reads)
                bounds = _at_peak_ns(split.bytes, rate), last - split.at_ns
                found.append(_interval("read input", "spark", lane_of(executor), split.at_ns, last, bounds, OPENED))
    for container, marks in sorted(evidence.yarn.containers.items()):
        opened, closed = marks.at.get("LOCALIZING"), marks.at.get("SCHEDULED")
        if opened is None or closed is None:
            continue
        owner = evidence.executor_of.get(container)
        lane = lane_of(owner) if owner else APPLICATION
        reads = [t for t in evidence.transfers if t.operation == "HDFS_READ" and opened <= t.end_ns <= closed]
        if reads:
            bounds = _at_peak_ns(sum(t.bytes for t in reads), rate), sum(t.duration_ns for t in reads)
            found.append(_interval("localise", "yarn", lane, opened, closed, bounds, CLIENT_TRACE))
    return found


def close_retries(evidence: Evidence, spans: Iterable[Span]) -> list[Span]:
    """The client's sleeps inside writes, with their cause: HDFS's time, but a setting's and not a disk's."""
    with_path = [span for span in spans if span.layer == "hdfs" and span.attrs.get("path")]
    tries = [span for span in with_path if span.name == COMPLETE]
    written = [span for span in with_path if span.name != COMPLETE]
    found: list[Span] = []
    for retry in evidence.close_retries:
        path = retry.path.removesuffix(".inprogress")
        for span in written:
            if span.start_ns <= retry.at_ns < span.end_ns and span.attrs["path"] == path:
                mine = [t for t in tries if t.lane == span.lane and t.attrs["path"] == retry.path]
                found.append(_retry_span(span, retry, _sleep(span, retry, mine), len(found)))
    return found


def _sleep(write: Span, retry: CloseRetry, tries: Iterable[Span]) -> tuple[int, int]:
    """From when to when the client slept: between two of its own calls where it logged these."""
    starts_ns = min((t.end_ns for t in tries if t.start_ns <= retry.at_ns < t.end_ns), default=retry.at_ns)
    next_ns = min((t.start_ns for t in tries if t.start_ns >= starts_ns), default=write.end_ns)
    return starts_ns, min(starts_ns + retry.delay_ns, next_ns, write.end_ns)


def _retry_span(write: Span, retry: CloseRetry, slept: tuple[int, int], number: int) -> Span:
    by: dict[str, Any] = (
        {"cause": CLOSE_RETRY, "source": "NN log, client's default"}
        if retry.next_ns is None
        else {"cause": CLOSE_RETRY_SEEN, "source": "NN log"}
    )
    return Span(
        f"{write.id}/retry-{number}",
        None,
        "hdfs",
        "sleep before closing again",
        write.process,
        write.lane,
        *slept,
        cause_period_ns=retry.delay_ns,
        **by,
        resolution_ns=RESOLUTION_NS,
    )


def _interval(
    name: str, inside: str, lane: str, start: int, end: int, bounds_ns: tuple[int, int], hi_source: str
) -> Interval:
    lo_source = f"bytes / fastest {CLIENT_TRACE} rate"
    hi_ns = min(bounds_ns[1], end - start)
    return Interval("hdfs", inside, lane, start, end, min(bounds_ns[0], hi_ns), hi_ns, lo_source, hi_source, name)


def _at_peak_ns(size: int, rate: float | None) -> int:
    return round(size / rate * 1e9) if rate else 0


def _reads(transfers: Iterable[Transfer], blocks: set[str], start: int, end: int) -> list[Transfer]:
    # one input file is read by one task at a time, so that block and time name the task
    return [t for t in transfers if t.operation == "HDFS_READ" and t.block in blocks and start <= t.end_ns <= end]


def _peak_bytes_per_s(transfers: Iterable[Transfer]) -> float | None:
    rates = [t.bytes / t.duration_ns * 1e9 for t in transfers if t.bytes >= MIN_RATE_BYTES and t.duration_ns > 0]
    return max(rates, default=None)


def outages(evidence: Evidence) -> list[str]:
    """Reads and writes that the run survived by another replica, one line each."""
    given_up = Counter(
        (instant.attrs["address"], instant.attrs["how"])
        for process in evidence.processes
        for instant in process.instants
        if instant.name == names.DATANODE_GIVEN_UP
    )
    return [
        f"the DataNode at {address} {how}: {count} reads and writes were tried at another one"
        for (address, how), count in sorted(given_up.items())
    ]


def summary(evidence: Evidence, spans: Iterable[Span], found: Iterable[Interval]) -> tuple[HdfsUse, ...]:
    """Returns HDFS work by purpose. Times are sums over all lanes, which overlap: they are no part of the wall."""
    rows: dict[str, dict[str, Any]] = {}
    for span in spans:
        purpose = span.attrs.get("purpose")
        if span.layer != "hdfs" or not purpose:
            continue
        begin, _, end = span.source.partition(", ")
        verb = span.name.split(" ")[0]
        if verb == names.STREAM and purpose != names.INPUT:  # whose row was called so before anything else was streamed
            verb = names.READ
        name = purpose if verb not in (names.READ, names.WRITE) or purpose == "staging" else f"{verb} {purpose}"
        row = rows.setdefault(name, _row(name, 0, begin, end or begin))
        row["operations"] += 1
        row["ns"] += max(0, span.end_ns - span.start_ns)  # one that ends before it starts is counted as a clip
        row["bytes"] += span.attrs.get("bytes", 0)
    for row in rows.values():
        row["lo_ns"] = row["hi_ns"] = row["ns"]
    if "staging" in rows:
        staged = _written(
            evidence, {a.path for a in evidence.audits if "/.sparkStaging/" in a.path and a.command == "create"}
        )
        rows["staging"]["bytes"] = staged
    if "event log" in rows:
        rows["event log"]["bytes"] = _size(evidence)
    for interval in found:
        row = rows.setdefault(interval.name, _row(interval.name, None, interval.lo_source, interval.hi_source))
        row["operations"] += 1
        row["lo_ns"] += interval.lo_ns
        row["hi_ns"] += interval.hi_ns
    if "read input" in rows:
        rows["read input"]["bytes"] = sum(
            split.bytes for log in evidence.executors.values() for split in log.splits.values()
        )
    if "localise" in rows:
        rows["localise"]["bytes"] = _localised(evidence)
    return tuple(HdfsUse(**row) for row in (*rows.values(), *_calls(evidence)))


def _calls(evidence: Evidence) -> list[dict[str, Any]]:
    """How often the NameNode was asked in the window, by everybody, and by the driver for ranks' markers: dlobd's own
    part, which trains nothing. No log says how long these calls took."""
    start_ns, end_ns = evidence.window["exec_ns"], evidence.window["exit_ns"]
    asked = [a for a in evidence.audits if start_ns <= a.at_ns < end_ns]
    if not asked:
        return []
    looks = [a for a in asked if a.command == "listStatus" and a.path == f"{evidence.job.get('run_dir')}/done"]
    rows = [(ALL_CALLS, asked)] if evidence.own else [(ALL_CALLS, asked), (MARKER_LOOKS, looks)]
    unknown = {"bytes": None, "lo_ns": None, "hi_ns": None}
    return [_row(purpose, None, AUDIT_LOG, AUDIT_LOG) | unknown | {"operations": len(of)} for purpose, of in rows]


def _row(purpose: str, ns: int | None, begin: str, end: str) -> dict[str, Any]:
    return {
        "purpose": purpose, "operations": 0, "bytes": 0, "ns": ns, "lo_ns": 0, "hi_ns": 0,
        "source_begin": begin, "source_end": end,
    }  # fmt: skip


def _written(evidence: Evidence, paths: set[str]) -> int | None:
    """Bytes that DataNodes wrote while the staging files were created; None where there is no client trace."""
    times = [a.at_ns for a in evidence.audits if a.path in paths]
    if not times or not evidence.transfers:
        return None
    first, last = min(times), max(times)
    return sum(t.bytes for t in evidence.transfers if t.operation == "HDFS_WRITE" and first <= t.end_ns <= last)


def _localised(evidence: Evidence) -> int:
    windows = [
        (marks.at["LOCALIZING"], marks.at["SCHEDULED"])
        for marks in evidence.yarn.containers.values()
        if {"LOCALIZING", "SCHEDULED"} <= set(marks.at)
    ]
    reads = {
        (t.end_ns, t.block): t.bytes
        for t in evidence.transfers
        for opened, closed in windows
        if t.operation == "HDFS_READ" and opened <= t.end_ns <= closed
    }
    return sum(reads.values())


def _size(evidence: Evidence) -> int | None:
    path = evidence.path / files.EVENT_LOG
    return path.stat().st_size if path.exists() else None
